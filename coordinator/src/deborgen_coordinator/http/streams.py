"""Long answers and large bodies: a limited number at a time. Live streams end when the server stops."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from deborgen_shared import headers
from deborgen_shared.errors import Code, Refusal

#: A body or an answer of at most this many bytes never blocks a thread: the event loop has received the whole body
#: before a thread sees it, and the socket buffers the whole answer.
SMALL_BYTES = 64 * 1024


class Slots:
    """A limited number of slots, because each long answer occupies a thread. Without a free slot, a request is
    refused."""

    def __init__(self, most: int, refusal: str) -> None:
        self._free = most
        self._refusal = refusal
        self._lock = threading.Lock()

    def take(self) -> None:
        with self._lock:
            if self._free <= 0:
                raise Refusal(Code.SLOW_DOWN, self._refusal, "try again", headers={headers.RETRY_AFTER: "2"})
            self._free -= 1

    def give_back(self) -> None:
        with self._lock:
            self._free += 1

    def open(self, chunks: Iterator[bytes]) -> Stream:
        """The chunks as an answer that gives its slot back when it ends, however it ends."""
        self.take()
        return Stream(self, chunks)

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.give_back()


class Streams:
    """The slots for long requests: `live` streams, which stay open for more, and `transfers` of many bytes."""

    def __init__(self, live: int, transfers: int) -> None:
        self.live = Slots(live, "too many live streams are open")
        self.transfers = Slots(transfers, "too many large uploads and downloads are in progress")
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """End all live streams."""
        self._closed.set()

    def send(self, chunks: Iterator[bytes], size: int) -> Iterable[bytes]:
        """The chunks as an answer. It takes a slot if it is too large for the buffers of a connection."""
        return self.transfers.open(chunks) if size > SMALL_BYTES else chunks

    def receive(self, size: int) -> AbstractContextManager[None]:
        """Hold a slot while a body of this size is read, unless the body has already arrived."""
        return self.transfers if size > SMALL_BYTES else nullcontext()


class Stream:
    """The body of an answer. It gives its slot back on `close`, which the server always calls."""

    def __init__(self, slots: Slots, chunks: Iterator[bytes]) -> None:
        self._slots: Slots | None = slots
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.give_back()
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()


def client_is_gone(environ: dict[str, Any]) -> bool:
    """Whether the client has closed the connection. A pending byte means that it has not."""
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return False
    timeout = connection.gettimeout()
    try:
        connection.settimeout(0)
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        with suppress(OSError):
            connection.settimeout(timeout)
