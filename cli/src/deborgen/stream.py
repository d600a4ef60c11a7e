"""Server-sent events, read for as long as it takes: a cut line is taken up again where it broke, without loss."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import requests

from deborgen.connection import Connection, pieces
from deborgen.errors import Unreachable
from deborgen_shared.messages import Event, Events

#: As `after`: only what happens from now on.
NOW = None

#: The coordinator sends at least a comment this often; a silent line is a dead one.
SILENCE_SECONDS = 45.0


class Line:
    """A stream that another thread may end: give its methods to `events`."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._response: requests.Response | None = None

    def stopped(self) -> bool:
        return self._stop.is_set()

    def opened(self, response: requests.Response) -> None:
        self._response = response
        if self._stop.is_set():
            response.close()

    def hang_up(self) -> None:
        self._stop.set()
        # A stream that nobody reads any more is one that somebody else may need: the coordinator has only so many.
        shutdown = getattr(self._response.raw, "shutdown", None) if self._response is not None else None
        if shutdown is not None:
            with contextlib.suppress(Exception):
                shutdown()


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


def history(connection: Connection, params: Mapping[str, Any], after: int, limit: int | None = None) -> Iterator[Event]:
    """Events that have happened, oldest first, at most `limit` of them."""
    left = limit
    while left is None or left > 0:
        page = connection.get("/v1/events", Events, {**params, "after": after, "limit": min(left or 1000, 1000)})
        yield from page.items
        if not page.items or not page.next:
            return
        after = page.items[-1].seq
        left = None if left is None else left - len(page.items)


def latest(connection: Connection, params: Mapping[str, Any], limit: int) -> list[Event]:
    """The newest events, oldest of them first."""
    narrowed = any(value is not None for value in params.values())
    start = 0 if narrowed else max(0, newest(connection) - limit)
    return list(deque(history(connection, params, start), maxlen=limit))


def newest(connection: Connection) -> int:
    """The number of the newest event. Found by halving: the contract tells only whether there is a later one."""

    def is_later(than: int) -> bool:
        return bool(connection.get("/v1/events", Events, {"after": than, "limit": 1}).items)

    low, high = -1, 1024
    while is_later(high):
        low, high = high, high * 4
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_later(middle) else (low, middle)
    return high


def events(
    connection: Connection,
    params: Mapping[str, Any],
    after: int | None,
    *,
    stop: Callable[[], bool] = lambda: False,
    on_open: Callable[[requests.Response], None] = lambda response: None,
    on_trouble: Callable[[str], None] = lambda sentence: None,
) -> Iterator[Event]:
    """Events as they happen, from the one after `after` on. Reconnects until nobody listens, or `stop()`."""
    last = newest(connection) if after is NOW else after
    pause = 0.5
    while not stop():
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
        try:
            response = connection.request(
                "GET", "/v1/events", params=params, headers=headers, stream=True, read_seconds=SILENCE_SECONDS
            )
            on_open(response)
            with response:
                for identity, data in parse(_until(stop, pieces(response))):
                    pause = 0.5
                    event = msgspec.json.decode(data, type=Event)
                    last = int(identity) if identity.isdigit() else event.seq
                    yield event
        except (requests.RequestException, Unreachable) as why:
            if stop():
                return
            on_trouble(why.message if isinstance(why, Unreachable) else "the connection was cut")
        time.sleep(pause)
        pause = min(pause * 2, 10.0)


def _until(stop: Callable[[], bool], chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if stop():
            return
        yield chunk
