"""The one writer: it groups waiting transactions into one commit, and answers only after it.

So nothing that was acknowledged can be lost, one flush of the disk serves many requests, and writers never fight for
a lock. Each piece of work is one transaction of its own in effect: it sees what was done before it, and when it raises,
what it did is undone and the others go on.
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

from .database import Connection, Database, DatabaseUnavailable, Row
from .transactions import Entangled, Mark, Tx

T = TypeVar("T")
log = logging.getLogger("deborgen.storage")

#: At most this many transactions share a commit.
GROUP = 256
#: While the database is away, a transaction waits this many seconds for it before it is refused.
PATIENCE = 20.0


class _Item:
    """A piece of work that waits: it wakes up when it is done, or when it is its turn to lead."""

    __slots__ = ("awaited", "error", "leads", "result", "wake", "work")

    def __init__(self, work: Callable[[Tx], Any], *, awaited: bool = True) -> None:
        self.work = work
        self.awaited = awaited
        self.wake = threading.Lock()
        self.wake.acquire()
        self.leads = False
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    """`write` may be called from any thread. There is one connection, and one thread at a time leads: it runs the work
    of all who wait, its own included, commits it, wakes them, and hands the lead to whoever came meanwhile.

    So a lonely write costs no change of threads, and a crowd costs one a piece.
    """

    def __init__(
        self, database: Database, committed: Callable[[set[str]], None], recorded: Callable[[list[Row]], None]
    ) -> None:
        self._database = database
        self._committed = committed
        self._recorded = recorded
        self._lock = threading.Lock()
        self._waiting: deque[_Item] = deque()
        self._untold: list[Row] = []
        self._led = False
        self._closed = False
        self._connection: Connection | None = database.connect(readonly=False)
        self._name = secrets.token_hex(8)

    @property
    def process(self) -> int | None:
        """The server's process that commits for us, if there is one."""
        return self._connection.process if self._connection is not None else None

    def write(self, work: Callable[[Tx], T]) -> T:
        """Run the work in a transaction, and return its result once it is durable.

        The work may be run more than once (its first run undone), so it must do nothing but use its transaction.
        """
        item = _Item(work)
        with self._lock:
            if self._closed:
                raise DatabaseUnavailable("the coordinator is stopping")
            self._waiting.append(item)
            item.leads = not self._led
            self._led = True
        if not item.leads:
            item.wake.acquire()
        if item.leads:
            self._lead(item)
        if item.error is not None:
            raise item.error
        result: T = item.result
        return result

    def write_later(self, work: Callable[[Tx], Any]) -> None:
        """Have the work done with the next commit, for what nobody waits for and nobody misses."""
        with self._lock:
            if not self._closed:
                self._waiting.append(_Item(work, awaited=False))

    def close(self) -> None:
        """Take no more work, finish what is under way, and close the connection."""
        with contextlib.suppress(Exception):
            self.write(lambda tx: tx.sign_off())  # whatever waits is committed with this
        with self._lock:
            self._closed = True
            busy = self._led
        while busy:
            time.sleep(0.005)  # the last leader is committing: it holds the connection
            with self._lock:
                busy = self._led
        if self._connection is not None:
            self._connection.close()

    def _lead(self, leader: _Item) -> None:
        """Commit the work of all who wait, and pass the lead on."""
        with self._lock:
            self._waiting.remove(leader)
            group = [leader, *(self._waiting.popleft() for _ in range(min(GROUP - 1, len(self._waiting))))]
        try:
            done = self._commit_all(group)
        except BaseException:
            # The leader's own thread was interrupted, as by Ctrl-C: nobody may wait for it for ever.
            self._undo()
            for item in group:
                item.error = DatabaseUnavailable("the commit was interrupted")
            raise
        finally:
            more = self._hand_over(leader, group)
        for tx in done:
            if tx.signals:
                self._committed(tx.signals)
        self._tell([event for tx in done for event in tx.recorded()], hurry=not more)

    def _hand_over(self, leader: _Item, group: list[_Item]) -> bool:
        """Wake those whose work is done, and let the next one lead; whether there is one."""
        with self._lock:
            following = next((item for item in self._waiting if item.awaited), None)
            self._led = following is not None
        if following is not None:
            following.leads = True
            following.wake.release()
        for item in group:
            if item is not leader:
                item.wake.release()
        return following is not None

    def _tell(self, events: list[Row], *, hurry: bool) -> None:
        """Pass on what was recorded: at once when it is quiet, many together when it is not."""
        with self._lock:
            self._untold += events
            if not self._untold or not (hurry or len(self._untold) >= GROUP):
                return
            told, self._untold = self._untold, []
        self._recorded(told)

    def _commit_all(self, group: list[_Item]) -> list[Tx]:
        """Commit the group together, or, where one piece of work would drag others with it, each for itself."""
        try:
            return [self._commit(group)]
        except Entangled:
            return [tx for item in group for tx in self._commit_all([item])]
        except Exception as error:
            refusal = self._refusal(error)
            for item in group:
                item.error = refusal
            return []

    def _commit(self, group: list[_Item]) -> Tx:
        """Run the group until it is committed, through deadlocks and a database that comes back."""
        deadline = time.monotonic() + PATIENCE
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
                log.warning("the database interrupted a transaction, trying again: %s", type(error).__name__)
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
    def _run(tx: Tx, item: _Item, mark: Mark | None) -> None:
        """Run the work; if it is refused, undo what was done since the mark, or all if it has the transaction alone."""
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
        """Leave the transaction; a connection that cannot even do that is thrown away."""
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
        """Ask the database what became of a commit whose answer was lost."""
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
        # Nothing to wait for: only time brings a server back, or lets a deadlock pass. A server that is away is asked
        # less and less often, since each time its name is looked up too.
        time.sleep(min(1.0, 0.07 * 1.5 ** min(tries, 10)) if isinstance(error, DatabaseUnavailable) else 0.01)

    @staticmethod
    def _refusal(error: Exception) -> BaseException:
        log.error("a commit failed, nothing of it was done: %s: %s", type(error).__name__, error)
        if isinstance(error, DatabaseUnavailable):
            return error
        refusal = DatabaseUnavailable(str(error))
        refusal.__cause__ = error
        return refusal
