"""Answers that go on for as long as something happens: a bounded number of them, and none outlives a stop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from deborgen_shared import headers
from deborgen_shared.errors import Code, Refusal

#: What the event loop has collected before a thread is asked, and what a socket takes without waiting for its reader.
SMALL = 64 * 1024


class Places:
    """So many may go on at once, because each holds a thread; the next one is asked to come back."""

    def __init__(self, most: int, refusal: str) -> None:
        self._free = most
        self._refusal = refusal
        self._lock = threading.Lock()

    def take(self) -> None:
        with self._lock:
            if self._free <= 0:
                raise Refusal(Code.SLOW_DOWN, self._refusal, "Try again.", headers={headers.RETRY_AFTER: "2"})
            self._free -= 1

    def give_back(self) -> None:
        with self._lock:
            self._free += 1

    def open(self, chunks: Iterator[bytes]) -> Stream:
        """The chunks as an answer that gives its place back when it ends, however it ends."""
        self.take()
        return Stream(self, chunks)

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.give_back()


class Streams:
    """The long answers: `live` ones, which go on while something happens, and `transfers` of many bytes."""

    def __init__(self, live: int, transfers: int) -> None:
        self.live = Places(live, "Too many live streams are open.")
        self.transfers = Places(transfers, "Too many large uploads and downloads are under way.")
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """End all live streams."""
        self._closed.set()

    def send(self, chunks: Iterator[bytes], size: int) -> Iterable[bytes]:
        """The chunks as an answer; it takes a place if it is too large for the buffers of a connection."""
        return self.transfers.open(chunks) if size > SMALL else chunks

    def receive(self, size: int) -> AbstractContextManager[None]:
        """Hold a place while a body of this size is read, unless it is here already."""
        return self.transfers if size > SMALL else nullcontext()


class Stream:
    """An iterator whose `close` is called by the server in every case."""

    def __init__(self, places: Places, chunks: Iterator[bytes]) -> None:
        self._places: Places | None = places
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.give_back()
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()


def client_is_gone(environ: dict[str, Any]) -> bool:
    """Whether the other side has closed the connection. Nobody pipelines behind a stream, so a byte is no reason."""
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return False
    patience = connection.gettimeout()
    try:
        connection.settimeout(0)
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        with suppress(OSError):
            connection.settimeout(patience)
