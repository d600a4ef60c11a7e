"""The store: one writer, a few readers, and a notification after each commit."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from .database import Database, DatabaseConnection, DatabaseDamaged, DatabaseUnavailable, Row, database_for
from .schema import migrate, version
from .transactions import Tx
from .writer import GroupWriter

T = TypeVar("T")
log = logging.getLogger("deborgen.storage")

#: The number of concurrent readers. Each has its own connection and a small cache.
READERS = 8


class Store:
    """A change is durable when `write` returns; `read` sees a consistent snapshot.

    `on_commit` is called with the signals of each commit: of this process and, on PostgreSQL, of the other processes.
    `on_events` is called with the events that this process has committed.
    """

    def __init__(
        self,
        url: str,
        data_dir: Path,
        on_commit: Callable[[set[str]], None] = lambda signals: None,
        on_events: Callable[[list[Row]], None] = lambda events: None,
    ) -> None:
        """Open the database, bring its schema up to date, and start the writer."""
        self.database = database_for(url, data_dir)
        shared = prepare(self.database)
        self._on_commit = on_commit
        self._writer = GroupWriter(self.database, on_commit, on_events)
        self.write_later = self._writer.write_later
        self._readers: queue.LifoQueue[DatabaseConnection | None] = queue.LifoQueue()
        for _ in range(READERS):
            self._readers.put(None)
        self._closed = threading.Event()
        #: The damage that was found in the database file. Once there is any, nothing more is written to it.
        self.damage = ""
        self._listener: threading.Thread | None = None
        if shared:
            self._listener = threading.Thread(target=self._listen, name="listener", daemon=True)
            self._listener.start()

    def write(self, work: Callable[[Tx], T]) -> T:
        """Run the work in a transaction, and return its result once the commit is durable."""
        if self.damage:
            raise DatabaseUnavailable(f"the database is damaged, and nothing is written to it: {self.damage}")
        try:
            return self._writer.write(work)
        except DatabaseUnavailable as error:
            self._notice_damage(error.__cause__)
            raise

    def examine(self) -> None:
        """Read the whole database to find damage."""
        try:
            self.database.examine(self._closed)
        except DatabaseDamaged as damaged:
            self._note_damage(str(damaged))

    def _notice_damage(self, error: BaseException | None) -> None:
        if isinstance(error, Exception) and self.database.is_damage(error):
            self._note_damage(str(error))

    def _note_damage(self, damage: str) -> None:
        if not self.damage:
            log.critical("the database is damaged, and nothing is written to it any more: %s", damage)
            self.damage = damage

    def read(self, work: Callable[[DatabaseConnection], T]) -> T:
        with self.reading() as connection:
            return work(connection)

    @contextlib.contextmanager
    def reading(self) -> Iterator[DatabaseConnection]:
        """A connection for reading, on one snapshot. It comes from a small pool, so do not keep it for long."""
        pooled, connection = self._readers.get(), None
        try:
            connection = self._begin_reading(pooled)
            yield connection
            connection.run("COMMIT")
        except BaseException as error:
            self._notice_damage(error)
            if connection is not None:
                with contextlib.suppress(Exception):
                    connection.run("ROLLBACK")
                may_be_lost = not isinstance(error, Exception) or self.database.is_transient(error)
                if may_be_lost:
                    with contextlib.suppress(Exception):
                        connection.close()
                    connection = None
                    if isinstance(error, Exception):
                        raise DatabaseUnavailable(f"the database went away: {type(error).__name__}") from error
            if isinstance(error, Exception) and self.database.is_damage(error):
                raise DatabaseUnavailable(f"the database is damaged: {self.damage}") from error
            raise
        finally:
            self._readers.put(connection)

    def _begin_reading(self, pooled: DatabaseConnection | None) -> DatabaseConnection:
        """A connection with an open transaction: the pooled one, or a new one if the pooled one is lost."""
        if pooled is not None:
            try:
                pooled.begin_reading()
                return pooled
            except Exception as error:
                with contextlib.suppress(Exception):
                    pooled.close()
                if not self.database.is_transient(error):
                    raise
        connection = self.database.connect(readonly=True)
        try:
            connection.begin_reading()
        except Exception as error:
            connection.close()
            raise DatabaseUnavailable(f"the database went away: {type(error).__name__}") from error
        return connection

    def close(self) -> None:
        """Commit all pending work, then close. Readers close first, so that the writer is the last connection."""
        self._closed.set()
        if self._listener is not None:
            with contextlib.suppress(DatabaseUnavailable):
                self.write(lambda tx: tx.wake("closing"))  # wakes the listener, so that it stops at once
        for _ in range(READERS):
            connection = self._readers.get()
            if connection is not None:
                connection.close()
        self._writer.close()
        if self._listener is not None:
            self._listener.join()

    def _listen(self) -> None:
        """Pass on the signals of other processes. After a reconnect wake all waiters, because a signal may be lost."""
        while not self._closed.is_set():
            try:
                connection = self.database.connect(readonly=True)
                connection.listen()
                self._on_commit({"jobs", "events"})
                while not self._closed.is_set():
                    for sender, signals in connection.announcements(0.5):
                        if sender != self._writer.process:  # our own commits were already signalled
                            self._on_commit(signals)
                connection.close()
            except Exception as error:
                log.warning(
                    "lost the connection that listens for other processes, reconnecting: %s", type(error).__name__
                )
                self._closed.wait(0.5)


def stored_schema(url: str, data_dir: Path) -> int:
    """The schema version of the stored data, or 0 if there is none. Creates and migrates nothing."""
    database = database_for(url, data_dir)
    if not database.exists():
        return 0
    connection = database.connect(readonly=True)
    try:
        return version(connection)
    except Exception as error:
        if database.is_damage(error):
            raise DatabaseDamaged(str(error)) from error
        raise
    finally:
        connection.close()


def prepare(database: Database) -> bool:
    """Refuse a damaged database, and migrate the schema; return whether other processes may share the database."""
    connection = database.connect(readonly=False)
    try:
        database.check(connection)
        migrate(connection)
        return connection.shared
    finally:
        connection.close()
