"""How requests are read from sockets, so that slow clients never block others.

gunicorn's threaded worker reads from every new connection in a thread, so a few hundred idle or slow clients occupy all
threads. This worker collects the head and the first part of the body in its event loop, and uses a thread only for a
request that has arrived. A client that is too slow is disconnected. A client that sends its next request at once keeps
its thread, because switching threads can cost more than the request.
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
from datetime import datetime
from functools import partial
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from deborgen_coordinator.framing import STALL_SECONDS, PacedUnreader, PatientRequest, PatientResponse
from deborgen_shared import headers
from deborgen_shared.calls import JSON
from deborgen_shared.errors import Code

#: A request's head and the first part of its body must arrive within this many seconds after its first byte.
ARRIVAL_SECONDS = 20.0
#: A new connection must send its first byte within this many seconds.
GREETING_SECONDS = 20.0
#: After the last answer on a connection, read and discard incoming bytes for this many seconds before closing it: a
#: close with unread bytes sends a reset, which could destroy the answer.
LINGER_SECONDS = 2.0
#: The event loop collects at most this much of a body before it passes the request to a thread.
PREFETCH_BYTES = 64 * 1024
HEAD_LIMIT_BYTES = 64 * 1024
#: A client is quick if it sends its next request within this many seconds. Its thread then waits that long for the next
#: one instead of returning the connection to the event loop.
FOLLOW_SECONDS = 0.02
#: A thread serves at most this many requests of one client in a row before other clients get a turn.
MOST_IN_A_ROW = 16

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_NO_PREFETCH = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)


class ClientConnection(TConn):  # type: ignore[misc]
    """A client's connection, with the bytes of its next request that have arrived."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        self.data_ready = True
        self.arrived = bytearray()
        self.needed = 0
        self.lingering = False
        self.watched_at = 0.0
        self.is_quick = False

    def init(self) -> None:
        """Called in the request's thread: pass the bytes that have arrived to the parser."""
        if not self.initialized:
            super().init()
            self.parser.unreader = PacedUnreader(self.sock)
            self.parser.mesg_class = PatientRequest
        self.sock.settimeout(STALL_SECONDS)
        self.parser.unreader.start()
        self.parser.unreader.unread(bytes(self.arrived))
        self.arrived.clear()
        self.needed = 0

    def is_complete(self) -> bool:
        """Whether enough bytes have arrived to start a thread."""
        if not self.needed:
            end = self.arrived.find(b"\r\n\r\n")
            if end < 0:
                return len(self.arrived) > HEAD_LIMIT_BYTES
            head = bytes(self.arrived[: end + 2])
            length = _LENGTH.search(head)
            self.needed = end + 4
            if length and not _NO_PREFETCH.search(head):
                self.needed += min(int(length[1]), PREFETCH_BYTES)
        return len(self.arrived) >= self.needed

    def has_next(self) -> bool:
        """Whether the next request has arrived. Wait for it for a moment if the client is quick."""
        self.arrived += self.parser.unreader.take_buffered()
        if self.is_quick and not self.arrived:
            self.sock.settimeout(FOLLOW_SECONDS)
            try:
                self.arrived += self.sock.recv(PREFETCH_BYTES)
            except OSError:
                self.is_quick = False
        return bool(self.arrived) and self.is_complete()


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker, except that idle and slow clients wait in the event loop and occupy no thread."""

    alive: bool
    #: Called once when the worker is told to stop: it ends long requests.
    on_stop: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keepalived_conns: dict[ClientConnection, None] = {}
        self.next_look = 0.0
        self.next_notice = 0.0
        self.stopped = False

    def set_accept_enabled(self, enabled: bool) -> None:
        super().set_accept_enabled(enabled)
        # gunicorn's loop calls this as its first step of stopping.
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
                self.log.error("cannot accept a connection: no file descriptor is left")
                time.sleep(0.05)
            return
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.watch(ClientConnection(self.cfg, client, address, listener.getsockname()), GREETING_SECONDS)
            self.nr_conns += 1
        except OSError:
            client.close()  # the client has already disconnected

    def watch(self, conn: ClientConnection, seconds: float) -> None:
        """Wait for the client in the event loop, for at most this many seconds."""
        conn.sock.setblocking(False)
        conn.watched_at = time.monotonic()
        conn.timeout = conn.watched_at + seconds
        self.keepalived_conns[conn] = None
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_readable, conn))

    def on_readable(self, conn: ClientConnection, _: Any) -> None:
        try:
            data = conn.sock.recv(PREFETCH_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if conn.lingering:
            if not data:
                self.drop(conn)
            return
        if data and not conn.arrived:
            now = time.monotonic()
            conn.is_quick = now - conn.watched_at < FOLLOW_SECONDS
            conn.timeout = now + ARRIVAL_SECONDS
        conn.arrived += data
        if not conn.arrived:
            self.drop(conn)
        elif conn.is_complete() or not data:
            # A sender that stopped in the middle of a request gets an answer too, and no thread waits for it.
            self.poller.unregister(conn.sock)
            del self.keepalived_conns[conn]
            self.enqueue_req(conn)

    def drop(self, conn: ClientConnection) -> None:
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

    def notify(self) -> None:
        """Tell the arbiter that this process is alive: once per second, not with every event."""
        now = time.monotonic()
        if now >= self.next_notice:
            self.next_notice = now + 1.0
            super().notify()

    def handle(self, conn: ClientConnection) -> bool:
        """Serve the request, and requests that follow at once; return whether the connection can be reused."""
        for _ in range(MOST_IN_A_ROW):
            if not super().handle(conn):
                return False
            if not (self.alive and conn.has_next()):
                break
        return True

    def handle_request(self, req: PatientRequest, conn: ClientConnection) -> bool:
        """Answer the request, without gunicorn's unused hooks; return whether the connection can be reused."""
        began = datetime.now()
        resp, environ = PatientResponse(req, conn.sock, self.cfg), req.environ(conn)
        if not self.alive or len(self.keepalived_conns) >= self.max_keepalived:
            resp.force_close()
        try:
            chunks = self.wsgi(environ, resp.start_response)
            try:
                for chunk in chunks:
                    resp.write(chunk)
                resp.close()
            finally:
                self.log.access(resp, req, environ, datetime.now() - began)
                if hasattr(chunks, "close"):
                    chunks.close()
        except OSError:
            raise
        except Exception:
            if not resp.headers_sent:
                raise
            # A part of the answer may have been sent, and a second answer would look like the rest of it.
            self.log.exception("Error handling request")
            return False
        return not resp.should_close()

    def finish_request(self, conn: ClientConnection, future: Any) -> None:
        try:
            reusable = not future.cancelled() and future.result() and self.alive
            if reusable:
                conn.arrived += conn.parser.unreader.take_buffered()
                if conn.arrived and conn.is_complete():
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

    def _keepalive_after(self, conn: ClientConnection, keepalive: bool) -> bool:
        """Reuse a connection only if its body has arrived completely: no thread waits for the rest of a body."""
        request = conn.parser.mesg
        if not keepalive or request.lacks_body() or not (request.is_read() or conn.parser.finish_body()):
            return False
        conn.parser.mesg = None  # the parser has no need to check it again
        return True

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        """Answer a request that is not valid HTTP with a refusal in the usual shape."""
        internal = type(exc).__module__ != "gunicorn.http.errors"
        if internal:
            self.log.exception("Error handling request")
        status, code, message = (
            ("500 Internal Server Error", "internal", "the coordinator failed unexpectedly; its log says why")
            if internal
            else ("400 Bad Request", Code.MALFORMED, f"this is not a valid HTTP request: {exc}")
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
