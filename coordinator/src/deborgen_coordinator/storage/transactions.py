"""One transaction on the writer's connection, with the events and signals that its commit sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import hot
from .database import ConnectionMark, DatabaseConnection, Query, Row

EVENT_COLUMNS = tuple(field.column_name for field in hot.EVENT_FIELDS)
Event = Row
"""The values of an event, in the order of EVENT_COLUMNS."""


class Entangled(Exception):
    """A piece of work failed after it had changed something, and shares its transaction with other pieces."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of the transaction before a piece of work."""

    connection: ConnectionMark
    events: int
    signals: frozenset[str]


class Tx:
    """The transaction of a piece of work: it runs queries, records events, and wakes waiters after the commit.

    Events are collected and written just before the commit.
    """

    def __init__(self, connection: DatabaseConnection, writer: str = "") -> None:
        self.connection = connection
        self.writer = writer
        self.rows = connection.rows
        self.one = connection.one
        self.value = connection.value
        self.run = connection.run
        self.signals: set[str] = set()
        self._events: list[Event | Query] = []
        self._number = 0

    def begin(self) -> None:
        self._number = self.connection.begin_writing(self.writer)

    def mark(self) -> Mark:
        return Mark(self.connection.mark(), len(self._events), frozenset(self.signals))

    def undo(self, mark: Mark | None) -> None:
        """Undo a piece of work, or the whole transaction if there is no mark."""
        if mark is None:
            self.run("ROLLBACK")
        elif not self.connection.undo(mark.connection):
            raise Entangled
        del self._events[mark.events if mark else 0 :]
        self.signals = set(mark.signals if mark else ())

    def keep(self, mark: Mark | None) -> None:
        """Keep the changes of a piece of work."""
        if mark is not None:
            self.connection.keep(mark.connection)

    def record(self, event: Event) -> None:
        """Append an event to the history."""
        self._events.append(event)

    def record_set(self, query: Query) -> None:
        """Append events that one query inserts."""
        self._events.append(query)

    def single_events(self) -> list[Event]:
        """The events of this transaction that were recorded one by one."""
        return [event for event in self._events if isinstance(event, tuple)]

    def wake(self, signal: str) -> None:
        """Wake the requests that wait for the signal, in this process and in others, after the commit."""
        self.signals.add(signal)

    def flush(self) -> None:
        """Write the events, and announce the signals with the commit."""
        if self._events:
            self.signals.add("events")
        if self.signals:
            self.connection.announce(self.signals, history=bool(self._events))
        batch: list[Any] = []
        for event in self._events:
            if isinstance(event, tuple):
                batch.append(event)
            else:
                hot.insert_events(self, batch)
                batch = []
                self.run(event)
        hot.insert_events(self, batch)

    def commit(self) -> None:
        self.run("COMMIT")

    def was_committed(self, connection: DatabaseConnection) -> bool:
        """Ask a new connection whether this transaction was committed."""
        return connection.was_committed(self.connection, self.writer, self._number)

    def remove_writer(self) -> None:
        """Remove the row that counts this writer's transactions. This is the writer's last transaction."""
        self.connection.remove_writer(self.writer)
