"""How one request is read from its connection, and how its answer is sent."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from gunicorn.http import wsgi
from gunicorn.http.body import LengthReader
from gunicorn.http.message import Request
from gunicorn.http.unreader import SocketUnreader

from deborgen_coordinator.caches import SharedCache
from deborgen_shared import headers
from deborgen_shared.calls import JSON

#: In each stretch of this many seconds of waiting, bytes must move with at least this average rate.
STALL_SECONDS = 20.0
MIN_BYTES_PER_SECOND = 4096

#: Parsed request heads, by their bytes: clients send the same heads again and again. At most this many heads are
#: cached, each of at most this many bytes.
MAX_HEADS = 1000
MAX_HEAD_BYTES = 2048
_HEADS: SharedCache[bytes, dict[str, Any]] = SharedCache(MAX_HEADS)
#: Attributes that requests with the same head do not share.
_PER_REQUEST = ("unreader", "peer_addr", "remote_addr", "body", "trailers", "req_number", "ended")
#: WSGI variables of gunicorn that nothing here uses. The first one would keep a reference to the connection.
_UNUSED = ("wsgi.early_hints", "REMOTE_PORT")
#: The WSGI variable that holds the request itself.
REQUEST = "deborgen.request"


class TooSlow(TimeoutError):
    """The client sends or reads too slowly."""


def too_slow_message() -> str:
    """The message to a client whose body arrives too slowly."""
    return f"the body arrived too slowly: at least {MIN_BYTES_PER_SECOND} bytes per second are needed"


class Pace:
    """Measures whether bytes move fast enough while somebody waits for them."""

    def __init__(self) -> None:
        self._moved, self._waited = 0, 0.0

    def note(self, count: int, seconds: float = 0.0) -> None:
        """Note that this many bytes moved within this many seconds of waiting; raise `TooSlow` if they are too few."""
        self._moved += count
        self._waited += seconds
        if self._waited >= STALL_SECONDS:
            if self._moved < self._waited * MIN_BYTES_PER_SECOND:
                raise TooSlow("the client is too slow")
            self._moved, self._waited = 0, 0.0


class PacedUnreader(SocketUnreader):  # type: ignore[misc]
    """Reads what has arrived. Only an upload waits in its thread for more, and gives up if the sender is too slow."""

    pace: Pace | None = None

    def wait_for_more(self) -> None:
        self.sock.settimeout(STALL_SECONDS)
        self.pace = Pace()

    def chunk(self, size_hint: int | None = None) -> bytes:
        if self.pace is None:
            return b""
        began = time.monotonic()
        data: bytes = super().chunk(size_hint)
        self.pace.note(len(data), time.monotonic() - began)
        return data


class PatientRequest(Request):  # type: ignore[misc]
    """A request whose answer says `Connection: close` if a part of the body has not arrived by then.

    A refused upload is answered before its body is read. Without that header, the client would send its next request on
    a connection that is about to be closed.

    A head that gunicorn has already accepted, byte for byte the same, is not parsed again.
    """

    must_close: bool
    version: tuple[int, int]
    body: Any
    unreader: PacedUnreader
    #: Whether the client has ended its side of the connection: no more bytes will come.
    ended = False
    #: The WSGI variables of the head, once computed.
    described: dict[str, Any] | None = None

    def __init__(self, cfg: Any, unreader: PacedUnreader, peer_addr: Any, req_number: int = 1) -> None:
        arrived: bytes = unreader.take_buffered()
        end = arrived.find(b"\r\n\r\n") + 4
        self.head = arrived[:end]
        known = _HEADS.get(self.head)
        if known is None:
            unreader.unread(arrived)
            super().__init__(cfg, unreader, peer_addr, req_number)
            # gunicorn would answer with the version of the request, and we speak no newer one than this.
            self.version = min(self.version, (1, 1))
            return
        self.__dict__.update(known, unreader=unreader, peer_addr=peer_addr, remote_addr=peer_addr, trailers=[])
        self.set_body_reader()
        body_end = end + self.body.reader.length
        if body_end <= len(arrived):
            self.body, end = io.BytesIO(arrived[end:body_end]), body_end
        unreader.unread(arrived[end:])

    def environ(self, conn: Any) -> dict[str, Any]:
        """The WSGI environment of the request."""
        own = {
            "wsgi.input": self.body, REQUEST: self, "gunicorn.socket": conn.sock, "REMOTE_ADDR": conn.client[0],
        }  # fmt: skip
        if self.described is None:
            _, found = wsgi.create(self, conn.sock, conn.client, conn.server, conn.cfg)
            self.described = {name: value for name, value in found.items() if name not in (*own, *_UNUSED)}
            self._remember()
        return self.described | own

    def _remember(self) -> None:
        """Cache the parsed head, unless its body is chunked or it expects `100 Continue`."""
        plain = isinstance(self.body.reader, LengthReader) and not self._expected_100_continue
        if plain and 4 <= len(self.head) <= MAX_HEAD_BYTES:
            _HEADS.update({self.head: {name: value for name, value in vars(self).items() if name not in _PER_REQUEST}})

    def take_body(self, body: bytes) -> None:
        """Take the body, which has arrived after the head was parsed."""
        self.body = io.BytesIO(body)

    def should_close(self) -> bool:
        self.must_close = self.must_close or self.lacks_body()
        return bool(super().should_close())

    def is_read(self) -> bool:
        """Whether the whole body has been read from the connection."""
        return isinstance(self.body, io.BytesIO)

    def lacks_body(self) -> bool:
        """Whether bytes of the body are missing, or their number is unknown."""
        if self.is_read():
            return False
        if not isinstance(self.body.reader, LengthReader) or self.body.failed:
            return True
        return bool(self.body.reader.length > self.unreader.buf.getbuffer().nbytes)


def answer_of(status: int, body: Any, more: Mapping[str, str] | None = None) -> bytes:
    """A complete answer after which the connection is closed: for refusals that do not come from the application."""
    data = json.dumps(body).encode()
    lines = {headers.CONTENT_TYPE: JSON, headers.CONTENT_LENGTH: str(len(data)), "Connection": "close", **(more or {})}
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    return (head + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n").encode() + data


class PatientResponse(wsgi.Response):  # type: ignore[misc]
    """An answer whose head is sent together with the first piece of its body, so that the client wakes up only once."""

    head = b""
    headers_sent: bool

    def send_headers(self) -> None:
        if not self.headers_sent:
            self.headers_sent = True
            lines = [*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]
            self.head = "".join(lines).encode("latin-1")

    def _emit_body(self, data: bytes) -> None:
        head, self.head = self.head, b""
        self.sock.sendall(head + (b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data))

    def begin(self) -> None:
        """Send the head before there is a body."""
        self.send_headers()
        head, self.head = self.head, b""
        self.sock.sendall(head)

    def close(self) -> None:
        self.send_headers()
        if self.head or self.chunked:
            self.sock.sendall(self.head + (b"0\r\n\r\n" if self.chunked else b""))
