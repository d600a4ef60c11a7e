"""A client's connection: the bytes of its next request that have arrived, and those of its answer that have not left.

The event loop collects requests, and sends what a socket did not take at once. Threads read and write without waiting.
"""

from __future__ import annotations

import contextlib
import re
import socket
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gunicorn.http.errors import LimitRequestHeaders
from gunicorn.workers.gthread import TConn

from deborgen_coordinator.framing import MAX_HEAD_BYTES, MAX_HEADS, STALL_SECONDS, Pace, PacedUnreader, PatientRequest
from deborgen_coordinator.shares import Share, Turns
from deborgen_shared import contract
from deborgen_shared.calls import Call
from deborgen_shared.states import Role

if TYPE_CHECKING:
    from deborgen_coordinator.http.live import LiveStream

#: The event loop collects at most this much of a body before it passes the request to a thread for the first time.
PREFETCH_BYTES = 64 * 1024
HEAD_LIMIT_BYTES = 64 * 1024
#: A client is quick if it sends its next request within this many seconds. Its thread then waits that long for the next
#: one instead of returning the connection to the event loop.
FOLLOW_SECONDS = 0.02


def _request_line(call: Call[Any]) -> str:
    """A pattern for the beginning of the call's request: its method and its path."""
    path = re.sub(r"\\{\w+\\}", r"[^/ ?]+", re.escape(call.path))
    return f"{call.method} {path} "


_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_NO_PREFETCH = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)
_TOKEN = re.compile(rb"\r\nauthorization:[ \t]*bearer +([A-Za-z0-9._~+/=-]+)[ \t]*\r\n", re.IGNORECASE)
_SESSION = re.compile(rb"\r\ncookie:[^\r]*?deborgen(?:_[0-9]{1,5})?=([A-Za-z0-9_-]{20,100})", re.IGNORECASE)
_WORKERS_TOKEN = f"dbg_{Role.WORKER}_".encode()
_RENEWAL = re.compile("|".join(map(_request_line, (contract.HEARTBEAT, contract.FINISH, contract.REGISTER))).encode())


class RequestHead(NamedTuple):
    """What the event loop knows of a request before it is parsed: enough to treat it fairly, and no more."""

    #: Whose token or session it carries. Nobody has checked it yet.
    person: bytes = b""
    #: Whether it is a call of a worker that keeps its leases alive.
    renews: bool = False
    #: How many bytes of its body the event loop collects first.
    prefetch: int = 0


def examine_head(head: bytes) -> RequestHead:
    """Find out what the event loop needs to know of a request, from the bytes of its head."""
    token, length = _TOKEN.search(head) or _SESSION.search(head), _LENGTH.search(head)
    person = token[1] if token else b""
    renews = person.startswith(_WORKERS_TOKEN) and _RENEWAL.match(head) is not None
    prefetch = min(int(length[1]), PREFETCH_BYTES) if length and not _NO_PREFETCH.search(head) else 0
    return RequestHead(person, renews, prefetch)


_examine_known_head = lru_cache(MAX_HEADS)(examine_head)


class After(Enum):
    """What comes after a thread has worked on a request."""

    CLOSE = auto()
    KEEP = auto()
    #: The rest of the body is collected. Then the request gets a thread again.
    AWAIT = auto()
    #: The answer is a live stream.
    STREAM = auto()


class ClientConnection(TConn):  # type: ignore[misc]
    """A client's connection. The event loop and the thread of its request use it in turn, never at the same time."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        self.data_ready = True
        #: The bytes that have arrived and that no thread has taken yet.
        self.arrived = bytearray()
        #: How many bytes must have arrived before the request gets a thread; 0 until its head is complete.
        self.needed = 0
        self.head = RequestHead()
        #: The request whose head is parsed, while the rest of its body arrives.
        self.awaited: PatientRequest | None = None
        #: Bytes of the answer that the socket has not taken yet.
        self.unsent = bytearray()
        #: How fast the body arrives or the answer leaves, while the event loop waits for that.
        self.pace = Pace()
        #: Whether the client has ended its side.
        self.ended = False
        #: Which turns gave the request its thread, and the person whose turn it was.
        self.turn: tuple[Turns[ClientConnection], Any]
        #: The person whose connection it counts as; None if it is not counted.
        self.owner: Any = None
        #: The memory that its body takes, and the share from which it was taken.
        self.body_bytes = 0
        self.body_share: Share | None = None
        #: The memory that the unread rest of its answer takes.
        self.unread = 0
        #: What to do after the rest of the answer has been sent.
        self.after = After.CLOSE
        #: The live stream that is its answer, whether it has begun, and whether it is chunked.
        self.stream: LiveStream | None = None
        self.is_streaming = self.chunked = False
        #: Whether the client is gone, and whether the connection is closed.
        self.is_gone = self.is_closed = False
        #: Whether the last answer has been sent, and incoming bytes are only discarded.
        self.lingering = False
        #: Since when the event loop waits for bytes of this client.
        self.watched_at = 0.0
        #: Whether the client sent its last request quickly, so that its thread waits a moment for the next one.
        self.is_quick = False

    @property
    def person(self) -> Any:
        """Who the client claims to be: the token of its request or, without one, its address."""
        return self.head.person or self.client[0]

    def is_complete(self) -> bool:
        """Whether enough bytes have arrived to give the request a thread."""
        if not self.needed:
            end = self.arrived.find(b"\r\n\r\n")
            if end < 0:
                return len(self.arrived) > HEAD_LIMIT_BYTES
            head = bytes(self.arrived[: end + 2])
            self.head = _examine_known_head(head) if end < MAX_HEAD_BYTES else examine_head(head)
            self.needed = end + 4 + self.head.prefetch
        return len(self.arrived) >= self.needed

    def next_request(self) -> PatientRequest:
        """Called in the request's thread: parse the bytes that have arrived."""
        if not self.initialized:
            super().init()
            self.parser.unreader = PacedUnreader(self.sock)
            self.parser.mesg_class = PatientRequest
        self.sock.setblocking(False)
        unreader: PacedUnreader = self.parser.unreader
        unreader.pace = None
        arrived, needed = bytes(self.arrived), self.needed
        self.arrived.clear()
        self.needed = 0
        request, self.awaited = self.awaited, None
        if request is not None:
            request.take_body(arrived[:needed])
            unreader.unread(arrived[needed:])
            return request
        if not needed and len(arrived) > HEAD_LIMIT_BYTES:
            raise LimitRequestHeaders(f"its head has more than {HEAD_LIMIT_BYTES} bytes")
        unreader.unread(arrived)
        parsed: PatientRequest = next(self.parser)
        parsed.ended = self.ended
        return parsed

    def await_body(self, request: PatientRequest, length: int) -> None:
        """Let the event loop collect the body; then the same request gets a thread again."""
        self.awaited, self.needed = request, length
        self.arrived += self.parser.unreader.take_buffered()
        self.pace = Pace()

    def has_next(self) -> bool:
        """Whether this client's next request has arrived, and may have the same thread. Wait a moment for a quick
        client."""
        self.arrived += self.parser.unreader.take_buffered()
        if self.is_quick and not self.arrived:
            self.sock.settimeout(FOLLOW_SECONDS)
            try:
                self.arrived += self.sock.recv(PREFETCH_BYTES)
            except OSError:
                self.is_quick = False
        before = self.head
        return bool(self.arrived) and self.is_complete() and self.head[:2] == before[:2]

    def sendall(self, data: bytes) -> None:
        """Send what the socket takes without waiting. The event loop sends the rest."""
        sent = 0
        if not self.unsent:
            with contextlib.suppress(BlockingIOError):
                sent = self.sock.send(data)
        if sent < len(data):
            self.unsent += memoryview(data)[sent:]

    def send_rest(self) -> None:
        """Called in the event loop: send more of the answer."""
        with contextlib.suppress(BlockingIOError):
            sent = self.sock.send(self.unsent[:PREFETCH_BYTES])
            del self.unsent[:sent]
            self.pace.note(sent)

    def framed(self, data: bytes) -> bytes:
        """A piece of a live stream as it is sent; an empty piece is the end."""
        return b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data

    def wait_for_reader(self) -> socket.socket:
        """The socket, for a thread that itself waits until the client has read each piece."""
        self.sock.settimeout(STALL_SECONDS)
        sock: socket.socket = self.sock
        return sock


class StreamSink:
    """Where a live stream writes to, from its own thread. It may write again when everything before has been sent."""

    def __init__(self, loop: Any, conn: ClientConnection) -> None:
        self._loop, self._conn = loop, conn

    def send(self, data: bytes) -> bool:
        """Send a piece. False if the socket did not take all of it: the event loop sends the rest, then resumes the
        stream."""
        try:
            self._conn.sendall(self._conn.framed(data))
        except OSError:
            return False  # the event loop notices it too
        is_sent = not self._conn.unsent
        if not is_sent:
            self._loop.method_queue.defer(self._loop.send_later, self._conn)
        return is_sent

    def close(self, *, at_end: bool) -> None:
        """Stop using the connection. `at_end` says that the stream is complete."""
        if at_end:
            with contextlib.suppress(OSError):
                self._conn.sendall(self._conn.framed(b""))
        self._loop.method_queue.defer(self._loop.end_stream, self._conn)
