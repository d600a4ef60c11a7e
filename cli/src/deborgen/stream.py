"""Server-sent events, read for as long as it takes: a cut line is taken up again where it broke, without loss."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from deborgen.connection import Connection
from deborgen.errors import Unreachable
from deborgen_shared import contract
from deborgen_shared import headers as h
from deborgen_shared.client.backoff import BackOff
from deborgen_shared.client.transport import Incoming
from deborgen_shared.messages import Event
from deborgen_shared.queries import EventsQuery

#: As `after`: only what happens from now on.
NOW = None

#: The coordinator sends at least a comment this often; a silent line is a dead one.
SILENCE_SECONDS = 45.0


class Line:
    """A stream that another thread may end: give its methods to `events`."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._answer: Incoming | None = None

    def stopped(self) -> bool:
        return self._stop.is_set()

    def opened(self, answer: Incoming) -> None:
        self._answer = answer
        if self._stop.is_set():
            answer.hang_up()

    def hang_up(self) -> None:
        self._stop.set()
        # The coordinator has room for a bounded number of streams: one that nobody reads is in somebody's way.
        if self._answer is not None:
            self._answer.hang_up()


def parse(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """The `(id, data)` of each message in a stream of bytes, wherever the chunks are cut."""
    buffer = b""
    identity = ""
    data: list[str] = []
    for chunk in chunks:
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line == "":
                if data:
                    yield identity, "\n".join(data)
                data = []
            elif name == "id":
                identity = value
            elif name == "data":
                data.append(value)


def history(connection: Connection, query: EventsQuery, after: int, limit: int | None = None) -> Iterator[Event]:
    """Events that have happened, oldest first, at most `limit` of them."""
    left = limit
    while left is None or left > 0:
        query = msgspec.structs.replace(query, after=after, limit=min(left or 1000, 1000))
        page = connection.call(contract.LIST_EVENTS, None, query)
        yield from page.items
        if not page.items or not page.next:
            return
        after = page.items[-1].seq
        left = None if left is None else left - len(page.items)


def latest(connection: Connection, query: EventsQuery, limit: int) -> list[Event]:
    """The newest events, oldest of them first."""
    start = 0 if query != EventsQuery() else max(0, newest(connection) - limit)
    return list(deque(history(connection, query, start), maxlen=limit))


def newest(connection: Connection) -> int:
    """The number of the newest event."""
    return int(connection.call(contract.LIST_EVENTS, None, EventsQuery(after="now")).next or 0)


def events(
    connection: Connection,
    query: EventsQuery,
    after: int | None,
    *,
    stop: Callable[[], bool] = lambda: False,
    on_open: Callable[[Incoming], None] = lambda answer: None,
    on_trouble: Callable[[str], None] = lambda sentence: None,
) -> Iterator[Event]:
    """Events as they happen, from the one after `after` on. Reconnects until nobody listens, or `stop()`."""
    last = newest(connection) if after is NOW else after
    back_off = BackOff(first=0.5, most=10.0)
    while not stop():
        headers = {h.ACCEPT: contract.EVENT_STREAM, h.LAST_EVENT_ID: str(last)}
        try:
            with connection.open(contract.LIST_EVENTS, query, headers=headers, seconds=SILENCE_SECONDS) as answer:
                on_open(answer)
                for identity, data in parse(_until(stop, iter(answer))):
                    back_off.reset()
                    event = msgspec.json.decode(data, type=Event)
                    last = int(identity) if identity.isdigit() else event.seq
                    yield event
        except Unreachable as why:
            if stop():
                return
            on_trouble(why.message)
        time.sleep(back_off.after_failure())


def _until(stop: Callable[[], bool], chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if stop():
            return
        yield chunk
