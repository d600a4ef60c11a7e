"""Reads server-sent events. A cut connection is resumed at the next event, without loss."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

import msgspec

from deborgen.connection import Connection
from deborgen.errors import DeborgenError, Unreachable
from deborgen_shared import contract
from deborgen_shared import headers as h
from deborgen_shared.client.backoff import BackOff
from deborgen_shared.client.transport import Incoming
from deborgen_shared.messages import Event
from deborgen_shared.queries import EventsQuery

#: A stream that is silent for longer than this is dead: the coordinator sends an event or a comment more often.
SILENCE_SECONDS = 45.0

#: A thread that waits for a change asks the coordinator again after this many seconds, even without an event.
LOOK_AT_LEAST_EVERY = 5.0
#: Minimum number of seconds between two such requests, however many events arrive.
LOOK_AT_MOST_EVERY = 0.1


class StreamHandle:
    """Lets another thread end a stream: pass it to `events`."""

    def __init__(self) -> None:
        self.stopped = False
        self._answer: Incoming | None = None

    def opened(self, answer: Incoming) -> None:
        self._answer = answer
        if self.stopped:
            answer.hang_up()

    def hang_up(self) -> None:
        self.stopped = True
        # The coordinator serves a limited number of streams: an unread one would take the place of another.
        if self._answer is not None:
            self._answer.hang_up()


def parse(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data of each message in a stream of bytes. The chunks may be cut anywhere."""
    buffer = b""
    data: list[str] = []
    for chunk in chunks:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
            elif line == "" and data:
                yield "\n".join(data)
                data = []


def history(connection: Connection, query: EventsQuery, limit: int | None = None) -> Iterator[Event]:
    """At most `limit` past events, oldest first."""
    return connection.items(contract.LIST_EVENTS, query, limit, cursor="after")


def latest(connection: Connection, query: EventsQuery, limit: int) -> list[Event]:
    """The newest events, in the order in which they happened."""
    # Without a filter, the newest events are those with the highest numbers, and the older ones need not be read.
    if query == EventsQuery():
        query = EventsQuery(after=max(0, newest(connection) - limit))
    return list(deque(history(connection, query), maxlen=limit))


def newest(connection: Connection) -> int:
    """The number of the newest event."""
    return int(connection.call(contract.LIST_EVENTS, None, EventsQuery(after="now")).next or 0)


def events(
    connection: Connection,
    query: EventsQuery,
    after: int | None,
    handle: StreamHandle | None = None,
    on_trouble: Callable[[str], None] = lambda sentence: None,
) -> Iterator[Event]:
    """Events as they happen, starting after number `after`, or now. Reconnects until `handle` ends the stream."""
    handle = handle or StreamHandle()
    last = newest(connection) if after is None else after
    back_off = BackOff(first=0.5, most=10.0)
    while not handle.stopped:
        headers = {h.ACCEPT: contract.EVENT_STREAM, h.LAST_EVENT_ID: str(last)}
        try:
            with connection.open(contract.LIST_EVENTS, query, headers=headers, seconds=SILENCE_SECONDS) as answer:
                handle.opened(answer)
                for data in parse(takewhile(lambda chunk: not handle.stopped, answer)):
                    back_off.reset()
                    event = msgspec.json.decode(data, type=Event)
                    last = event.seq
                    yield event
        except Unreachable as why:
            if handle.stopped:
                return
            on_trouble(why.message)
        time.sleep(back_off.after_failure())


class ChangeListener:
    """Listens for events on a thread while the block runs, and wakes the waiting thread when one arrives.

    It carries no state: the waiting thread asks the coordinator again, so a missed event loses nothing.
    """

    def __init__(self, connection: Connection, query: EventsQuery, on_trouble: Callable[[str], None]) -> None:
        self._connection = connection
        self._query = query
        self._on_trouble = on_trouble
        self._changed = threading.Event()
        self._stream = StreamHandle()
        self._looked = 0.0

    def __enter__(self) -> ChangeListener:
        threading.Thread(target=self._listen, daemon=True, name="deborgen-changes").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.hang_up()

    def wait(self, seconds: float | None = None, at_most_every: float = LOOK_AT_MOST_EVERY) -> bool:
        """Wait for a change, at most `seconds`. True if there was one.

        Two calls return at least `at_most_every` seconds apart, unless `seconds` is shorter.
        """
        longest = LOOK_AT_LEAST_EVERY if seconds is None else min(seconds, LOOK_AT_LEAST_EVERY)
        too_early_by = max(0.0, at_most_every - (time.monotonic() - self._looked))
        time.sleep(min(too_early_by, longest))
        changed = self._changed.wait(max(0.0, longest - too_early_by))
        self._changed.clear()
        self._looked = time.monotonic()
        return changed

    def _listen(self) -> None:
        try:
            after = newest(self._connection)
            # Something may have changed since the waiting thread last asked: let it ask once more.
            self._changed.set()
            for _ in events(self._connection, self._query, after, self._stream, self._on_trouble):
                self._changed.set()
        except DeborgenError:
            # Let the waiting thread ask: it will get the same error.
            self._changed.set()
