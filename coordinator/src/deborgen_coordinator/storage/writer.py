"""The only writer of a process: it groups pending transactions into one commit, and then returns their results.

So no acknowledged change can be lost, one disk flush serves many requests, and writers never compete for a lock. Each
piece of work behaves like a transaction of its own: it sees all earlier work, and if it raises, its changes are undone
and the other pieces continue.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from .database import Database, DatabaseConnection, DatabaseUnavailable, Row
from .transactions import Entangled, Mark, Tx

T = TypeVar("T")
log = logging.getLogger("deborgen.storage")

#: At most this many transactions share one commit.
MAX_GROUP = 256
#: While the database is unreachable, retry a transaction for this many seconds before refusing it.
PATIENCE_SECONDS = 20.0


class _PendingWrite:
    """A pending piece of work. Its thread wakes up when the work is done, or when it becomes the leader."""

    __slots__ = ("awaited", "error", "leads", "result", "wake", "work")

    def __init__(self, work: Callable[[Tx], Any], *, awaited: bool = True) -> None:
        self.work = work
        self.awaited = awaited
        self.wake = threading.Lock()
        self.wake.acquire()
        self.leads = False
        self.result: Any = None
        self.error: BaseException | None = None


class GroupWriter:
    """`write` may be called from any thread. There is one connection, and one thread at a time is the leader: it runs
    all pending work, including its own, commits it, wakes the other threads, and passes the lead to one that waits.

    So a single write needs no switch of threads, and each of many concurrent writes needs one. `on_commit` is called
    with the signals of each commit, and `on_events` with its events.
    """

    def __init__(
        self, database: Database, on_commit: Callable[[set[str]], None], on_events: Callable[[list[Row]], None]
    ) -> None:
        self._database = database
        self._on_commit = on_commit
        self._on_events = on_events
        self._lock = threading.Lock()
        self._waiting: deque[_PendingWrite] = deque()
        self._has_leader = False
        self._closed = False
        self._connection: DatabaseConnection | None = database.connect(readonly=False)
        self._name = secrets.token_hex(8)

    @property
    def process(self) -> int | None:
        """The id of the database server's process that commits for us; None if the database has no server."""
        return self._connection.process if self._connection is not None else None

    def write(self, work: Callable[[Tx], T]) -> T:
        """Run the work in a transaction, and return its result once the commit is durable.

        The work may run more than once (its earlier changes are undone), so its only effect must be on its transaction.
        """
        item = _PendingWrite(work)
        with self._lock:
            if self._closed:
                raise DatabaseUnavailable("the coordinator is stopping")
            self._waiting.append(item)
            item.leads = not self._has_leader
            self._has_leader = True
        if not item.leads:
            item.wake.acquire()
        if item.leads:
            self._lead(item)
        if item.error is not None:
            raise item.error
        result: T = item.result
        return result

    def write_later(self, work: Callable[[Tx], Any]) -> None:
        """Do the work with the next commit. Nobody waits for it, and it may be lost."""
        with self._lock:
            if not self._closed:
                self._waiting.append(_PendingWrite(work, awaited=False))

    def close(self) -> None:
        """Accept no more work, finish pending work, and close the connection."""
        with contextlib.suppress(Exception):
            self.write(lambda tx: tx.remove_writer())  # commits all pending work as well
        with self._lock:
            self._closed = True
            busy = self._has_leader
        while busy:
            time.sleep(0.005)  # the last leader still uses the connection
            with self._lock:
                busy = self._has_leader
        if self._connection is not None:
            self._connection.close()

    def _lead(self, leader: _PendingWrite) -> None:
        """Commit all pending work, and pass the lead on."""
        with self._lock:
            self._waiting.remove(leader)
            group = [leader, *(self._waiting.popleft() for _ in range(min(MAX_GROUP - 1, len(self._waiting))))]
        try:
            done = self._commit_all(group)
        except BaseException:
            # The leader's thread was interrupted, for example by Ctrl-C. No other thread must wait for it forever.
            self._undo()
            for item in group:
                item.error = DatabaseUnavailable("the commit was interrupted")
            raise
        finally:
            self._hand_over(leader, group)
        for tx in done:
            if tx.signals:
                self._on_commit(tx.signals)
        if events := [event for tx in done for event in tx.single_events()]:
            self._on_events(events)

    def _hand_over(self, leader: _PendingWrite, group: list[_PendingWrite]) -> None:
        """Make the next waiting thread the leader, and wake the threads whose work is done."""
        with self._lock:
            following = next((item for item in self._waiting if item.awaited), None)
            self._has_leader = following is not None
        if following is not None:
            following.leads = True
            following.wake.release()
        for item in group:
            if item is not leader:
                item.wake.release()

    def _commit_all(self, group: list[_PendingWrite]) -> list[Tx]:
        """Commit the group together. If the failure of one piece would undo others, commit each piece separately."""
        try:
            return [self._commit(group)]
        except Entangled:
            return [tx for item in group for tx in self._commit_all([item])]
        except Exception as error:
            refusal = self._refusal(error)
            for item in group:
                item.error = refusal
            return []

    def _commit(self, group: list[_PendingWrite]) -> Tx:
        """Run the group until it is committed. Retry after deadlocks and while the database is unreachable."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        tries = 0
        while True:
            try:
                if self._connection is None:
                    self._connection = self._database.connect(readonly=False)
                tx = Tx(self._connection, self._name)
                tx.begin()
                alone = len(group) == 1
                for item in group:
                    self._run(tx, item, None if alone else tx.mark())
                if alone and group[0].error is not None:
                    return tx
                tx.flush()
            except Exception as error:
                self._undo()
                if not (self._database.is_transient(error) or isinstance(error, DatabaseUnavailable)):
                    raise
                if self._closed or time.monotonic() > deadline:
                    raise
                log.warning("the database interrupted a transaction, retrying: %s", type(error).__name__)
                tries += 1
                self._pause(error, tries)
                continue
            try:
                tx.commit()
            except Exception as error:
                if not self._database.is_transient(error):
                    self._undo()
                    raise
                if self._was_committed(tx, deadline):
                    return tx
                continue
            return tx

    @staticmethod
    def _run(tx: Tx, item: _PendingWrite, mark: Mark | None) -> None:
        """Run the work; if it fails, undo its changes since the mark, or the whole transaction if there is no mark."""
        item.error = None
        try:
            item.result = item.work(tx)
        except Exception as error:
            if tx.connection.is_broken(error):
                raise
            item.error = error
            tx.undo(mark)
        else:
            tx.keep(mark)

    def _undo(self) -> None:
        """Roll the transaction back; discard the connection if even that fails."""
        if self._connection is None:
            return
        try:
            self._connection.run("ROLLBACK")
        except Exception as error:
            if "no transaction is active" in str(error):
                return
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    def _was_committed(self, tx: Tx, deadline: float) -> bool:
        """Ask the database whether a commit succeeded, after its answer was lost."""
        tries = 0
        while True:
            with contextlib.suppress(Exception):
                if self._connection is not None:
                    self._connection.close()
            self._connection = None
            try:
                self._connection = self._database.connect(readonly=False)
                return tx.was_committed(self._connection)
            except Exception as error:
                if self._closed or time.monotonic() > deadline:
                    raise
                tries += 1
                self._pause(error, tries)

    @staticmethod
    def _pause(error: Exception, tries: int) -> None:
        # There is no signal to wait for. Retries of an unreachable server become rarer, because each also looks up its
        # name.
        time.sleep(min(1.0, 0.07 * 1.5 ** min(tries, 10)) if isinstance(error, DatabaseUnavailable) else 0.01)

    @staticmethod
    def _refusal(error: Exception) -> BaseException:
        log.error("a commit failed, and nothing was changed: %s: %s", type(error).__name__, error)
        if isinstance(error, DatabaseUnavailable):
            return error
        refusal = DatabaseUnavailable(str(error))
        refusal.__cause__ = error
        return refusal
