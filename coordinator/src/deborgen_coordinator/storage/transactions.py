"""One transaction on the writer's connection, and what it leaves for the moment of the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import hot
from .database import Connection, Query, Row
from .database import Mark as Place

EVENT_COLUMNS = tuple(field.column_name for field in hot.EVENT_FIELDS)
Event = Row
"""The values of an event, in the order of EVENT_COLUMNS."""


class Entangled(Exception):
    """A piece of work was refused after it had changed something, among others in the same transaction."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the transaction stood before a piece of work."""

    place: Place
    events: int
    signals: frozenset[str]


class Tx:
    """What a piece of work gets: the connection's verbs, events to record, and waiters to wake after the commit.

    Events are kept back and written just before the commit.
    """

    def __init__(self, connection: Connection, writer: str = "") -> None:
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
        """Undo a piece of work, or the whole transaction where there is no mark."""
        if mark is None:
            self.run("ROLLBACK")
        elif not self.connection.undo(mark.place):
            raise Entangled
        del self._events[mark.events if mark else 0 :]
        self.signals = set(mark.signals if mark else ())

    def keep(self, mark: Mark | None) -> None:
        """Let a piece of work stand."""
        if mark is not None:
            self.connection.keep(mark.place)

    def record(self, event: Event) -> None:
        """Append an event to the history."""
        self._events.append(event)

    def record_set(self, query: Query) -> None:
        """Append a set of events, by a query that inserts them."""
        self._events.append(query)

    def recorded(self) -> list[Event]:
        """The events of this transaction that were recorded one by one."""
        return [event for event in self._events if isinstance(event, tuple)]

    def wake(self, signal: str) -> None:
        """Wake those who wait for the signal, here and in the other processes, once this is committed."""
        self.signals.add(signal)

    def flush(self) -> None:
        """Write the events, and have the signals announced with the commit."""
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

    def was_committed(self, connection: Connection) -> bool:
        """What became of this transaction, asked on a new connection."""
        return connection.was_committed(self.connection, self.writer, self._number)

    def sign_off(self) -> None:
        """The last transaction of its writer: nothing of it is left to be found again."""
        self.connection.sign_off(self.writer)
