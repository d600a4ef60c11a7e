"""How requests are read from sockets: patiently for many, and never at the cost of the others.

gunicorn's threaded worker gives every new connection a thread and reads from it there, so a few hundred idle or slow
clients hold all threads. This worker collects the head and the first part of the body in its event loop, and takes a
thread only for a request that is there. Whoever is too slow is closed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gunicorn.http.body import LengthReader
from gunicorn.http.message import Request
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.gthread import TConn, ThreadWorker

from deborgen_shared import headers
from deborgen_shared.calls import JSON
from deborgen_shared.errors import Code

#: A request must be there (its head, and the first part of its body) this long after its first byte.
ARRIVAL_SECONDS = 20.0
#: A new connection must send its first byte in this time.
GREETING_SECONDS = 20.0
#: One read or one write in a thread may take this long.
STALL_SECONDS = 20.0
#: After STALL_SECONDS, a body must have come at this many bytes a second on the average.
LEAST_PACE = 1024
#: A closed connection may send what is on its way for this long, or the answer could be lost to a reset.
LINGER_SECONDS = 2.0
#: What the event loop collects before it hands the request to a thread.
PREFETCH = 64 * 1024
HEAD_LIMIT = 64 * 1024

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_NO_PREFETCH = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)


class PacedUnreader(SocketUnreader):  # type: ignore[misc]
    """Reads for a thread, and gives up on a sender who keeps it waiting."""

    def start(self) -> None:
        self.since = time.monotonic()
        self.received = 0

    def chunk(self, size_hint: int | None = None) -> bytes:
        data: bytes = super().chunk(size_hint)
        self.received += len(data)
        elapsed = time.monotonic() - self.since
        if elapsed > STALL_SECONDS and self.received < elapsed * LEAST_PACE:
            raise ConnectionResetError(errno.ECONNRESET, "the sender is too slow")
        return data


class PatientRequest(Request):  # type: ignore[misc]
    """A request whose answer says `Connection: close` when a part of the body has not arrived by then.

    The answer to a refused upload goes out before its body is read. A client that is not told so would send its next
    request on a connection that is about to be closed.
    """

    must_close: bool

    def should_close(self) -> bool:
        self.must_close = self.must_close or self.lacks_body()
        return bool(super().should_close())

    def lacks_body(self) -> bool:
        """Whether bytes of the body are still to come, or their number is not known."""
        if not isinstance(self.body.reader, LengthReader) or self.body.failed:
            return True
        return bool(self.body.reader.length > self.unreader.buf.getbuffer().nbytes)


class Connection(TConn):  # type: ignore[misc]
    """A client, and what of its next request has arrived."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        self.data_ready = True
        self.arrived = bytearray()
        self.needed = 0
        self.lingering = False

    def init(self) -> None:
        """Called in the thread that got the request: hand it what has arrived."""
        if not self.initialized:
            super().init()
            self.parser.unreader = PacedUnreader(self.sock)
            self.parser.mesg_class = PatientRequest
        self.sock.settimeout(STALL_SECONDS)
        self.parser.unreader.start()
        self.parser.unreader.unread(bytes(self.arrived))
        self.arrived.clear()
        self.needed = 0

    def complete(self) -> bool:
        """Whether enough has arrived to take a thread for it."""
        if not self.needed:
            end = self.arrived.find(b"\r\n\r\n")
            if end < 0:
                return len(self.arrived) > HEAD_LIMIT
            head = bytes(self.arrived[: end + 2])
            length = _LENGTH.search(head)
            self.needed = end + 4
            if length and not _NO_PREFETCH.search(head):
                self.needed += min(int(length[1]), PREFETCH)
        return len(self.arrived) >= self.needed


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker, with all waiting for clients done in the event loop."""

    alive: bool
    #: Called once when the worker is told to stop: it ends what would wait for long.
    on_stop: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keepalived_conns: dict[Connection, None] = {}
        self.next_look = 0.0
        self.stopped = False

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled)
        if not self.alive and not self.stopped:
            self.stopped = True
            self.on_stop()

    def is_parent_alive(self) -> bool:
        alive: bool = super().is_parent_alive()
        self.alive = self.alive and alive
        return alive

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except OSError as problem:
            if problem.errno in (errno.EMFILE, errno.ENFILE):
                self.log.error("no file descriptor is left for another connection")
                time.sleep(0.05)
            return
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.watch(Connection(self.cfg, client, address, listener.getsockname()), GREETING_SECONDS)
            self.nr_conns += 1
        except OSError:
            client.close()  # it was gone before it was here

    def watch(self, conn: Connection, seconds: float) -> None:
        """Wait for the client in the event loop, for that long at most."""
        conn.sock.setblocking(False)
        conn.timeout = time.monotonic() + seconds
        self.keepalived_conns[conn] = None
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_readable, conn))

    def on_readable(self, conn: Connection, _: Any) -> None:
        try:
            data = conn.sock.recv(PREFETCH)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if conn.lingering:
            if not data:
                self.drop(conn)
            return
        if data and not conn.arrived:
            conn.timeout = time.monotonic() + ARRIVAL_SECONDS
        conn.arrived += data
        if not conn.arrived:
            self.drop(conn)
        elif conn.complete() or not data:
            # A sender who stopped in the middle gets an answer too; no thread has to wait for it.
            self.poller.unregister(conn.sock)
            del self.keepalived_conns[conn]
            self.enqueue_req(conn)

    def drop(self, conn: Connection) -> None:
        del self.keepalived_conns[conn]
        with contextlib.suppress(KeyError, ValueError, OSError):
            self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    def murder_keepalived(self, force: bool = False) -> None:
        now = time.monotonic()
        if force or now >= self.next_look:
            self.next_look = now + 0.5
            for conn in [c for c in self.keepalived_conns if force or c.timeout <= now]:
                self.drop(conn)

    def finish_request(self, conn: Connection, future: Any) -> None:
        try:
            reusable = not future.cancelled() and future.result() and self.alive
            if reusable:
                conn.arrived += conn.parser.unreader.take_buffered()
                if conn.arrived and conn.complete():
                    self.enqueue_req(conn)
                else:
                    self.watch(conn, ARRIVAL_SECONDS if conn.arrived else self.cfg.keepalive)
            else:
                conn.sock.shutdown(socket.SHUT_WR)
                conn.lingering = True
                self.watch(conn, LINGER_SECONDS)
        except Exception:
            self.keepalived_conns.pop(conn, None)
            self.nr_conns -= 1
            conn.close()

    def _keepalive_after(self, conn: Connection, keepalive: bool) -> bool:
        """A connection is used again only if no byte of a body is still to come: no thread waits for those."""
        return keepalive and not conn.parser.mesg.lacks_body() and bool(conn.parser.finish_body())

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        """A request that is not HTTP gets the one shape of refusal too."""
        broken = type(exc).__module__ != "gunicorn.http.errors"
        if broken:
            self.log.exception("Error handling request")
        status, code, message = (
            ("500 Internal Server Error", "internal", "The coordinator made a mistake; its log says which.")
            if broken
            else ("400 Bad Request", Code.MALFORMED, f"This is not a valid HTTP request: {exc}")
        )
        body = json.dumps({"error": {"code": code, "message": message, "hint": ""}}).encode()
        head = (
            f"HTTP/1.1 {status}\r\n{headers.CONTENT_TYPE}: {JSON}\r\n{headers.CONTENT_LENGTH}: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        try:
            client.sendall(head.encode() + body)
        except OSError:
            self.log.debug("the refusal could not be sent")
