"""A small HTTP/1.1 client on a socket: it sends any bytes as requests, and reads the answers in order."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import NamedTuple

Address = tuple[str, int]

#: An answer must have begun and ended within this many seconds.
PATIENCE = 60.0
#: A live stream is read until nothing has come for this many seconds.
QUIET_SECONDS = 0.05
MOST_ANSWER_BYTES = 64 << 20


class NoAnswer(Exception):
    """The connection ended before the answer did."""


class Late(Exception):
    """The answer did not come in time."""


class Malformed(Exception):
    """What came is not an HTTP answer."""


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    #: Whether the connection can be used for another request.
    stays_open: bool


class Connection:
    """A connection to the coordinator. It is opened when it is first used, and again after it was closed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._arrived = b""
        self.is_fresh = True

    def send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._arrived, self.is_fresh = b"", True
        with contextlib.suppress(ConnectionError):  # an early refusal may still be readable
            self._socket.sendall(data)

    def close(self, *, reset: bool = False) -> None:
        if self._socket is not None:
            if reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self._socket.close()
            self._socket = None

    def half_close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def receive(self, is_head: bool = False, seconds: float = PATIENCE) -> HttpAnswer:
        """The next answer. Answers that only announce another one (100 Continue) are skipped."""
        deadline = time.monotonic() + seconds
        while (answer := self._receive_one(is_head, deadline)).status < 200:
            pass
        self.is_fresh = False
        if not answer.stays_open:
            self.close()
        return answer

    def _receive_one(self, is_head: bool, deadline: float) -> HttpAnswer:
        while (end := self._arrived.find(b"\r\n\r\n")) < 0:
            self._more(deadline)
        lines = self._arrived[:end].decode("latin-1").split("\r\n")
        self._arrived = self._arrived[end + 4 :]
        words = lines[0].split(" ", 2)
        if len(words) < 3 or words[0] not in ("HTTP/1.0", "HTTP/1.1") or not words[1].isdigit():
            raise Malformed(f"an answer begins with {lines[0][:200]!r}")
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise Malformed(f"an answer has the header {line[:200]!r}")
            headers[name.strip().lower()] = value.strip()
        status, is_open = int(words[1]), headers.get("connection", "").lower() != "close"
        if is_head or status < 200 or status in (204, 304):
            return HttpAnswer(status, headers, b"", is_open)
        if "content-length" in headers:
            return HttpAnswer(status, headers, self._take(int(headers["content-length"]), deadline), is_open)
        return HttpAnswer(status, headers, self._until_quiet(), False)

    def _take(self, length: int, deadline: float) -> bytes:
        if length > MOST_ANSWER_BYTES:
            raise Malformed(f"an answer of {length} bytes")
        while len(self._arrived) < length:
            self._more(deadline)
        body, self._arrived = self._arrived[:length], self._arrived[length:]
        return body

    def _until_quiet(self) -> bytes:
        """What comes of an answer without a length: all of it, or the beginning of a live stream."""
        with contextlib.suppress(NoAnswer, Late):
            while len(self._arrived) < MOST_ANSWER_BYTES:
                self._more(time.monotonic() + QUIET_SECONDS)
        body, self._arrived = self._arrived, b""
        return body

    def _more(self, deadline: float) -> None:
        if self._socket is None:
            raise NoAnswer("the connection is closed")
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            raise Late("no answer came in time") from None
        except OSError as problem:
            raise NoAnswer(f"the connection broke: {problem.strerror}") from None
        if not data:
            raise NoAnswer("the connection was closed without an answer")
        self._arrived += data
