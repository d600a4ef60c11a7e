"""Answers that go on for as long as something happens: a bounded number of them, and none outlives a stop."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

from deborgen_shared.errors import Code, Refusal


class Streams:
    """The places for long answers. Each holds a thread, so there are only so many."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """End all streams."""
        self._closed.set()

    def open(self, chunks: Iterator[bytes]) -> Stream:
        """The chunks as an answer that gives its place back when it ends, however it ends."""
        with self._lock:
            if self._free <= 0 or self.closed:
                raise Refusal(
                    Code.SLOW_DOWN,
                    "Too many live streams are open.",
                    "Try again, or ask without following.",
                    headers={"Retry-After": "5"},
                )
            self._free -= 1
        return Stream(self, chunks)

    def give_back(self) -> None:
        with self._lock:
            self._free += 1


class Stream:
    """An iterator whose `close` is called by the server in every case."""

    def __init__(self, streams: Streams, chunks: Iterator[bytes]) -> None:
        self._streams: Streams | None = streams
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.give_back()
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()


def client_is_gone(environ: dict[str, Any]) -> bool:
    """Whether the other side has closed the connection. Nobody pipelines behind a stream, so a byte is no reason."""
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return False
    try:
        poller = select.poll()
        poller.register(connection, select.POLLIN | select.POLLRDHUP)
        for _, flags in poller.poll(0):
            if flags & (select.POLLHUP | select.POLLERR | select.POLLRDHUP | select.POLLNVAL):
                return True
            return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return True
    return False
