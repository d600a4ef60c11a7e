"""Server-sent events, read for as long as it takes: a cut line is taken up again where it broke, without loss."""

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

#: The coordinator sends at least a comment this often; a silent line is a dead one.
SILENCE_SECONDS = 45.0

#: Who waits for a change looks again after this long even when nothing was heard.
LOOK_AT_LEAST_EVERY = 5.0
#: Never look more often than this, however much happens.
LOOK_AT_MOST_EVERY = 0.1


class Line:
    """A stream that another thread may end: give it to `events`."""

    def __init__(self) -> None:
        self.stopped = False
        self._answer: Incoming | None = None

    def opened(self, answer: Incoming) -> None:
        self._answer = answer
        if self.stopped:
            answer.hang_up()

    def hang_up(self) -> None:
        self.stopped = True
        # The coordinator has room for a bounded number of streams: one that nobody reads is in somebody's way.
        if self._answer is not None:
            self._answer.hang_up()


def parse(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data of each message in a stream of bytes, wherever the chunks are cut."""
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
    """Events that have happened, oldest first, at most `limit` of them."""
    return connection.items(contract.LIST_EVENTS, query, limit, cursor="after")


def latest(connection: Connection, query: EventsQuery, limit: int) -> list[Event]:
    """The newest events, oldest of them first."""
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
    line: Line | None = None,
    on_trouble: Callable[[str], None] = lambda sentence: None,
) -> Iterator[Event]:
    """Events as they happen, from the one after `after` on, or from now on. Reconnects until the line is hung up."""
    line = line or Line()
    last = newest(connection) if after is None else after
    back_off = BackOff(first=0.5, most=10.0)
    while not line.stopped:
        headers = {h.ACCEPT: contract.EVENT_STREAM, h.LAST_EVENT_ID: str(last)}
        try:
            with connection.open(contract.LIST_EVENTS, query, headers=headers, seconds=SILENCE_SECONDS) as answer:
                line.opened(answer)
                for data in parse(takewhile(lambda chunk: not line.stopped, answer)):
                    back_off.reset()
                    event = msgspec.json.decode(data, type=Event)
                    last = event.seq
                    yield event
        except Unreachable as why:
            if line.stopped:
                return
            on_trouble(why.message)
        time.sleep(back_off.after_failure())


class Pulse:
    """Tells, at once, that something on the coordinator may have changed: listens on a thread while the block runs.

    It carries no state: the waiting thread asks the coordinator again, so a lost beat loses nothing.
    """

    def __init__(self, connection: Connection, query: EventsQuery, on_trouble: Callable[[str], None]) -> None:
        self._connection = connection
        self._query = query
        self._on_trouble = on_trouble
        self._changed = threading.Event()
        self._line = Line()
        self._looked = 0.0

    def __enter__(self) -> Pulse:
        threading.Thread(target=self._listen, daemon=True, name="deborgen-pulse").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.hang_up()

    def wait(self, seconds: float | None = None, at_most_every: float = LOOK_AT_MOST_EVERY) -> bool:
        """Wait for a beat, at most `seconds`; True when there was one."""
        longest = LOOK_AT_LEAST_EVERY if seconds is None else min(seconds, LOOK_AT_LEAST_EVERY)
        early = at_most_every - (time.monotonic() - self._looked)
        if early > 0:
            time.sleep(min(early, longest))
        beat = self._changed.wait(max(0.0, longest - max(early, 0)))
        self._changed.clear()
        self._looked = time.monotonic()
        return beat

    def _listen(self) -> None:
        try:
            after = newest(self._connection)
            # An answer from before this moment may have missed something: ask once more.
            self._changed.set()
            for _ in events(self._connection, self._query, after, self._line, self._on_trouble):
                self._changed.set()
        except DeborgenError:
            # The waiting thread finds out what is wrong when it asks.
            self._changed.set()
