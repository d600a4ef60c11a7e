"""How one request is read from its connection, and how its answer is sent."""

from __future__ import annotations

import errno
import io
import time
from typing import Any

from cachetools import LRUCache
from gunicorn.http import wsgi
from gunicorn.http.body import LengthReader
from gunicorn.http.message import Request
from gunicorn.http.unreader import SocketUnreader

from deborgen_coordinator.caches import SharedCache

#: One read or one write in a thread may take this many seconds.
STALL_SECONDS = 20.0
#: After STALL_SECONDS, a body must have arrived with at least this many bytes per second on average.
MIN_BYTES_PER_SECOND = 1024

#: Parsed request heads, by their bytes: clients send the same heads again and again. At most this many heads are
#: cached, each of at most this many bytes.
MAX_HEADS = 1000
MAX_HEAD_BYTES = 2048
_HEADS: SharedCache[bytes, dict[str, Any]] = SharedCache(LRUCache(MAX_HEADS))
#: Attributes that requests with the same head do not share.
_PER_REQUEST = ("unreader", "peer_addr", "remote_addr", "body", "trailers", "req_number")
#: WSGI variables of gunicorn that nothing here uses. The first one would keep a reference to the connection.
_UNUSED = ("wsgi.early_hints", "REMOTE_PORT")


class PacedUnreader(SocketUnreader):  # type: ignore[misc]
    """Reads for a thread, and gives up on a sender that is too slow."""

    def start(self) -> None:
        self.since = time.monotonic()
        self.received = 0

    def chunk(self, size_hint: int | None = None) -> bytes:
        data: bytes = super().chunk(size_hint)
        self.received += len(data)
        elapsed = time.monotonic() - self.since
        if elapsed > STALL_SECONDS and self.received < elapsed * MIN_BYTES_PER_SECOND:
            raise ConnectionResetError(errno.ECONNRESET, "the sender is too slow")
        return data


class PatientRequest(Request):  # type: ignore[misc]
    """A request whose answer says `Connection: close` if a part of the body has not arrived by then.

    A refused upload is answered before its body is read. Without that header, the client would send its next request on
    a connection that is about to be closed.

    A head that gunicorn has parsed and accepted before, byte by byte the same, is not parsed again.
    """

    must_close: bool
    body: Any
    #: The WSGI variables of the head, once they were computed.
    described: dict[str, Any] | None = None

    def __init__(self, cfg: Any, unreader: PacedUnreader, peer_addr: Any, req_number: int = 1) -> None:
        arrived: bytes = unreader.take_buffered()
        end = arrived.find(b"\r\n\r\n") + 4
        self.head = arrived[:end]
        known = _HEADS.get(self.head)
        if known is None:
            unreader.unread(arrived)
            super().__init__(cfg, unreader, peer_addr, req_number)
            return
        self.__dict__.update(known, unreader=unreader, peer_addr=peer_addr, remote_addr=peer_addr, trailers=[])
        self.set_body_reader()
        body = end + self.body.reader.length
        if body <= len(arrived):
            self.body, end = io.BytesIO(arrived[end:body]), body
        unreader.unread(arrived[end:])

    def environ(self, conn: Any) -> dict[str, Any]:
        """The WSGI environment of the request."""
        own = {"wsgi.input": self.body, "gunicorn.socket": conn.sock, "REMOTE_ADDR": conn.client[0]}
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

    def close(self) -> None:
        self.send_headers()
        if self.head or self.chunked:
            self.sock.sendall(self.head + (b"0\r\n\r\n" if self.chunked else b""))
