"""One transaction on the writer's connection, and what it leaves for the moment of the commit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .database import Connection, PostgresConnection, Row, insert_into

#: Every process that shares a PostgreSQL database takes this lock to append to the history, so that the order of the
#: events' numbers is the order of their commits, and a reader's cursor passes over nothing.
HISTORY_LOCK = 7306
CHANNEL = "deborgen"

EVENT_COLUMNS = ("time", "type", "job_id", "attempt", "worker", "actor", "old_state", "new_state", "data")
INSERT_EVENT = insert_into("event", EVENT_COLUMNS)
FIRST_COMMIT = "INSERT INTO writer (id, commits) VALUES (?, 1) RETURNING commits"


class Entangled(Exception):
    """A piece of work was refused after it had changed something, among others in the same transaction."""


@dataclass(frozen=True, slots=True)
class Mark:
    events: int
    signals: frozenset[str]
    changes: int | None


class Tx:
    """What a piece of work gets: the connection's verbs, events to record, and waiters to wake after the commit.

    Events are kept back and written just before the commit.

    On PostgreSQL a transaction counts itself in the row of its writer. By that number it is found again when the answer
    to its commit was lost. The server's own number of it would not do: one that crashed gives out again the numbers of
    which nothing had reached its disk.
    """

    def __init__(self, connection: Connection, dialect: str, writer: str = "") -> None:
        self.connection = connection
        self.writer = writer
        self.dialect = dialect
        self.rows = connection.rows
        self.one = connection.one
        self.value = connection.value
        self.run = connection.run
        self.many = connection.many
        self.fill = connection.fill
        self.is_broken = connection.is_broken
        self.for_update = connection.for_update
        self.skip_locked = connection.skip_locked
        self.signals: set[str] = set()
        self._events: list[Row] = []
        self._number = 0

    def begin(self) -> None:
        if self.dialect == "sqlite":
            self.run("BEGIN IMMEDIATE")
        else:
            self.run("BEGIN")
            counted = self.one("UPDATE writer SET commits = commits + 1 WHERE id = ? RETURNING commits", (self.writer,))
            self._number = counted[0] if counted else self.value(FIRST_COMMIT, (self.writer,))

    def mark(self) -> Mark:
        """Where the transaction stands before a piece of work."""
        changes = self.connection.changes()
        if changes is None:
            self.run("SAVEPOINT work")
        return Mark(len(self._events), frozenset(self.signals), changes)

    def undo(self, mark: Mark | None) -> None:
        """Undo a piece of work, or the whole transaction where there is no mark.

        SQLite needs no savepoint for that: it counts changes, and work that is refused has hardly ever made any. If it
        has, the whole group is undone.
        """
        if mark is None:
            self.run("ROLLBACK")
        elif mark.changes is None:
            self.run("ROLLBACK TO work")
            self.run("RELEASE work")
        elif self.connection.changes() != mark.changes:
            raise Entangled
        del self._events[mark.events if mark else 0 :]
        self.signals = set(mark.signals if mark else ())

    def keep(self, mark: Mark | None) -> None:
        """Let a piece of work stand."""
        if mark is not None and mark.changes is None:
            self.run("RELEASE work")

    def record(self, event: Row) -> None:
        """Append an event to the history: its values, in the order of EVENT_COLUMNS."""
        self._events.append(event)

    def record_set(self, sql: str, params: Sequence[Any]) -> None:
        """Append a set of events, as an INSERT … SELECT."""
        self._events.append((sql, params))

    def recorded(self) -> list[Row]:
        """The events of this transaction that were recorded one by one."""
        return [event for event in self._events if len(event) == len(EVENT_COLUMNS)]

    def wake(self, signal: str) -> None:
        """Wake those who wait for the signal, here and in the other processes, once this is committed."""
        self.signals.add(signal)

    def flush(self) -> None:
        """Write the events, and have the signals announced with the commit."""
        if self._events:
            self.signals.add("events")
        if self.signals and self.dialect == "postgres":
            told = (CHANNEL, ",".join(sorted(self.signals)))
            if self._events:
                self.one("SELECT pg_notify(?, ?), pg_advisory_xact_lock(?)", (*told, HISTORY_LOCK))
            else:
                self.one("SELECT pg_notify(?, ?)", told)
        batch: list[Row] = []
        for event in self._events:
            if len(event) == len(EVENT_COLUMNS):
                batch.append(event)
                continue
            if batch:
                self.many(INSERT_EVENT, batch)
                batch = []
            self.run(*event)
        if batch:
            self.many(INSERT_EVENT, batch)

    def commit(self) -> None:
        self.run("COMMIT")

    def was_committed(self, connection: Connection) -> bool:
        """What became of this transaction, asked on a new connection.

        If the server has not noticed that the line is cut, it may keep the transaction open for hours, with all its
        locks: its process there is ended first.
        """
        assert isinstance(self.connection, PostgresConnection)
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ? AND backend_start = ?"
        while connection.one(ended, self.connection.backend) is not None:
            time.sleep(0.01)
        row = connection.one("SELECT commits FROM writer WHERE id = ?", (self.writer,))
        return row is not None and row[0] == self._number

    def sign_off(self) -> None:
        """The last transaction of its writer: nothing of it is left to be found again."""
        if self.dialect == "postgres":
            self.run("DELETE FROM writer WHERE id = ?", (self.writer,))
