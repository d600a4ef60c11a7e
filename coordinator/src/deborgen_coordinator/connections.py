"""How requests are read from sockets: patiently for many, and never at the cost of the others.

gunicorn's threaded worker gives every new connection a thread and reads from it there, so a few hundred idle or slow
clients hold all threads. This worker collects the head and the first part of the body in its event loop, and takes a
thread only for a request that is there. A client that is too slow is cut off. A client that sends its next request at
once keeps its thread, because a change of threads can cost more than the request.
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

#: A request must be there (its head, and the first part of its body) this long after its first byte.
ARRIVAL_SECONDS = 20.0
#: A new connection must send its first byte in this time.
GREETING_SECONDS = 20.0
#: A closed connection may send what is on its way for this long, or the answer could be lost to a reset.
LINGER_SECONDS = 2.0
#: What the event loop collects before it hands the request to a thread.
PREFETCH = 64 * 1024
HEAD_LIMIT = 64 * 1024
#: A thread waits this long for the next request of a client that was just as quick, and serves this many in a row:
#: then it is the turn of others.
FOLLOW_SECONDS = 0.02
MOST_IN_A_ROW = 16

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_NO_PREFETCH = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)


class Connection(TConn):  # type: ignore[misc]
    """A client, and what of its next request has arrived."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        self.data_ready = True
        self.arrived = bytearray()
        self.needed = 0
        self.lingering = False
        self.watched_at = 0.0
        self.is_quick = False

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

    def has_next(self) -> bool:
        """Whether the next request is here, which is waited for a moment if the last one was as quick."""
        self.arrived += self.parser.unreader.take_buffered()
        if self.is_quick and not self.arrived:
            self.sock.settimeout(FOLLOW_SECONDS)
            try:
                self.arrived += self.sock.recv(PREFETCH)
            except OSError:
                self.is_quick = False
        return bool(self.arrived) and self.complete()


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker, with all waiting for clients done in the event loop."""

    alive: bool
    #: Called once when the worker is told to stop: it ends what would wait for long.
    on_stop: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keepalived_conns: dict[Connection, None] = {}
        self.next_look = 0.0
        self.next_notice = 0.0
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
        conn.watched_at = time.monotonic()
        conn.timeout = conn.watched_at + seconds
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
            now = time.monotonic()
            conn.is_quick = now - conn.watched_at < FOLLOW_SECONDS
            conn.timeout = now + ARRIVAL_SECONDS
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

    def notify(self) -> None:
        """Tell the first process that this one lives: once per second, and not with every event."""
        now = time.monotonic()
        if now >= self.next_notice:
            self.next_notice = now + 1.0
            super().notify()

    def handle(self, conn: Connection) -> bool:
        """Serve the request, and those that follow it at once; whether the connection can be used again."""
        for _ in range(MOST_IN_A_ROW):
            if not super().handle(conn):
                return False
            if not (self.alive and conn.has_next()):
                break
        return True

    def handle_request(self, req: PatientRequest, conn: Connection) -> bool:
        """Answer the request; whether the connection can be used again. Without gunicorn's hooks, which nobody uses."""
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
            # A part of the answer may be on its way, and a second answer would be taken for the rest of it.
            self.log.exception("Error handling request")
            return False
        return not resp.should_close()

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
        request = conn.parser.mesg
        if not keepalive or request.lacks_body() or not (request.is_read() or conn.parser.finish_body()):
            return False
        conn.parser.mesg = None  # it is done with, and the parser need not look at it again
        return True

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
