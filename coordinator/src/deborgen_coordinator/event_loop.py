"""The event loop: all waiting for clients happens here, so that no thread has to wait for one.

gunicorn's threaded worker reads and writes in threads, so a few slow clients can occupy all of them. Here the event
loop collects each request, and sends what a socket did not take of an answer at once. A client that is too slow is
disconnected. What the threads do is in `request_threads.py`.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

from deborgen_coordinator.connections import FOLLOW_SECONDS, PREFETCH_BYTES, After, ClientConnection, StreamSink
from deborgen_coordinator.framing import STALL_SECONDS, Pace, TooSlow, answer_of, too_slow_message
from deborgen_coordinator.shares import Share
from deborgen_shared.errors import Code, Refusal

#: A request's head and the first part of its body must arrive within this many seconds after its first byte.
ARRIVAL_SECONDS = 20.0
#: A new connection must send its first byte within this many seconds.
GREETING_SECONDS = 20.0
#: After the last answer on a connection, read and discard incoming bytes for this many seconds before closing it: a
#: close with unread bytes sends a reset, which could destroy the answer.
LINGER_SECONDS = 2.0
READ_BYTES = 256 * 1024
#: The answers that clients have not read yet use at most this much memory.
UNREAD_BYTES = 64 * 2**20


class EventLoop(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker with another way to wait for clients. Its methods run in the main thread."""

    alive: bool
    #: Called once, to end long requests, when this process is told to stop.
    on_stop: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keepalived_conns: dict[ClientConnection, None] = {}
        self.sending_conns: dict[ClientConnection, None] = {}
        #: Connections that have not sent a whole request yet, the oldest first.
        self.newcomers: dict[ClientConnection, None] = {}
        self.unread = Share(UNREAD_BYTES)
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

    def notify(self) -> None:
        """Tell the arbiter that this process is alive: once per second, not with every event."""
        now = time.monotonic()
        if now >= self.next_notice:
            self.next_notice = now + 1.0
            super().notify()

    # A request arrives

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
            conn = ClientConnection(self.cfg, client, address, listener.getsockname())
            self.watch(conn, GREETING_SECONDS)
        except OSError:
            client.close()  # the client has already disconnected
            return
        self.nr_conns += 1
        self.newcomers[conn] = None
        if self.nr_conns >= self.worker_connections and len(self.newcomers) > 1:
            self.make_room()

    def make_room(self) -> None:
        """Disconnect the client that has been silent for longest, so that the next client can connect.

        Silent clients have shown no token, so they cannot be held to a person's share of the connections.
        """
        self.drop(next(iter(self.newcomers)))

    def watch(self, conn: ClientConnection, seconds: float) -> None:
        """Wait for bytes of the client, for at most this many seconds."""
        conn.sock.setblocking(False)
        conn.watched_at = time.monotonic()
        conn.timeout = conn.watched_at + seconds
        self.keepalived_conns[conn] = None
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_readable, conn))

    def unwatch(self, conn: ClientConnection) -> None:
        self.keepalived_conns.pop(conn, None)
        self.sending_conns.pop(conn, None)
        with contextlib.suppress(KeyError, ValueError, OSError):
            self.poller.unregister(conn.sock)

    def on_readable(self, conn: ClientConnection, _: Any) -> None:
        try:
            data = conn.sock.recv(PREFETCH_BYTES if conn.awaited is None else READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if conn.lingering:
            if not data:
                self.drop(conn)
            return
        if data and not conn.arrived and conn.awaited is None:
            now = time.monotonic()
            conn.is_quick = now - conn.watched_at < FOLLOW_SECONDS
            conn.timeout = now + ARRIVAL_SECONDS
        conn.arrived += data
        conn.pace.note(len(data))
        conn.ended = not data
        if not conn.arrived and conn.awaited is None:
            self.drop(conn)
        elif conn.is_complete() or conn.ended:
            # A sender that stopped in the middle of a request gets an answer too, and no thread waits for it.
            self.newcomers.pop(conn, None)
            self.unwatch(conn)
            self.enqueue_req(conn)

    # An answer leaves

    def go_on(self, conn: ClientConnection, after: After) -> None:
        """Go on with the connection after its request. The unsent rest of the answer is sent first."""
        if conn.unsent:
            conn.after = after
            self.send_later(conn)
        elif after is After.STREAM:
            self.open_stream(conn)
        elif after is After.CLOSE or not self.alive:
            conn.sock.shutdown(socket.SHUT_WR)
            conn.lingering = True
            self.watch(conn, LINGER_SECONDS)
        else:
            if after is After.KEEP:
                conn.arrived += conn.parser.unreader.take_buffered()
            if (conn.arrived or after is After.AWAIT) and conn.is_complete():
                self.enqueue_req(conn)
            elif after is After.AWAIT:
                self.watch(conn, STALL_SECONDS)
            else:
                self.watch(conn, ARRIVAL_SECONDS if conn.arrived else self.cfg.keepalive)

    def send_later(self, conn: ClientConnection) -> None:
        """Send the rest of an answer, or of a piece of a stream, as fast as the client reads it."""
        if conn.is_gone:
            return
        self.release_unread(conn)
        if not self.unread.take(conn.owner, len(conn.unsent)):
            self.cut(conn)
            return
        conn.unread = len(conn.unsent)
        conn.pace = Pace()
        conn.timeout = time.monotonic() + STALL_SECONDS
        self.sending_conns[conn] = None
        if not conn.is_streaming:
            self.poller.register(conn.sock, selectors.EVENT_WRITE, partial(self.on_writable, conn))
        else:
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            self.poller.modify(conn.sock, both, partial(self.on_stream, conn))

    def on_writable(self, conn: ClientConnection, _: Any) -> None:
        try:
            conn.send_rest()
        except OSError:
            self.cut(conn)
            return
        if conn.unsent:
            return
        self.release_unread(conn)
        del self.sending_conns[conn]
        if conn.is_streaming and conn.stream is not None:
            self.poller.modify(conn.sock, selectors.EVENT_READ, partial(self.on_stream, conn))
            conn.stream.resume()
            return
        self.poller.unregister(conn.sock)
        try:
            self.go_on(conn, conn.after)
        except OSError:
            self.forget(conn)

    def release_unread(self, conn: ClientConnection) -> None:
        if conn.unread:
            self.unread.give_back(conn.owner, conn.unread)
            conn.unread = 0

    def refuse(self, conn: ClientConnection, refusal: Refusal) -> None:
        """Answer without a thread, and close the connection."""
        conn.arrived.clear()
        conn.awaited = None
        try:
            conn.sendall(answer_of(refusal.status, refusal.body(), refusal.headers))
            self.go_on(conn, After.CLOSE)
        except OSError:
            self.forget(conn)

    # Live streams: `LiveStream` fills them from a thread of its own

    def open_stream(self, conn: ClientConnection) -> None:
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_stream, conn))
        assert conn.stream is not None
        # A client that vanished without a word is noticed by the operating system.
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        conn.is_streaming = True
        conn.stream.connect(StreamSink(self, conn))

    def on_stream(self, conn: ClientConnection, _: Any) -> None:
        """The client of a stream has read something, or has disconnected. What it sends is discarded."""
        try:
            is_gone = not conn.sock.recv(READ_BYTES)
        except BlockingIOError:
            is_gone = False
        except OSError:
            is_gone = True
        if is_gone:
            self.cut(conn)
        elif conn.unsent and conn in self.sending_conns:
            self.on_writable(conn, None)

    def end_stream(self, conn: ClientConnection) -> None:
        """The stream no longer uses the connection: send what is unsent, and close it."""
        self.unwatch(conn)
        conn.is_streaming, conn.stream = False, None
        try:
            if conn.is_gone:
                self.forget(conn)
            else:
                self.go_on(conn, After.CLOSE)
        except OSError:
            self.forget(conn)

    # Ends

    def cut(self, conn: ClientConnection) -> None:
        """Disconnect a client that is gone or does not read. Its stream may still use the connection for a moment."""
        self.unwatch(conn)
        conn.is_gone = True
        if conn.is_streaming and conn.stream is not None:
            conn.stream.leave()
        else:
            self.forget(conn)

    def drop(self, conn: ClientConnection) -> None:
        """Close a connection that the event loop was waiting for."""
        self.unwatch(conn)
        self.forget(conn)

    def forget(self, conn: ClientConnection) -> None:
        """Close a connection that neither the event loop nor a thread uses any more."""
        self.release_unread(conn)
        self.newcomers.pop(conn, None)
        if conn.stream is not None:
            conn.stream.close()
        if not conn.is_closed:
            conn.is_closed = True
            self.nr_conns -= 1
            conn.close()

    def murder_keepalived(self, force: bool = False) -> None:
        """Twice per second, disconnect clients whose time is up; with `force`, all clients. The name is gunicorn's."""
        now = time.monotonic()
        if force or now >= self.next_look:
            self.next_look = now + 0.5
            for conn in [c for c in chain(self.keepalived_conns, self.sending_conns) if force or c.timeout <= now]:
                self.drop(conn) if force else self.expire(conn)

    def expire(self, conn: ClientConnection) -> None:
        """Disconnect a client that was waited for, unless its bytes still move fast enough."""
        is_sending = conn in self.sending_conns
        if is_sending or conn.awaited is not None:
            with contextlib.suppress(TooSlow):
                conn.pace.note(0, STALL_SECONDS)
                conn.timeout = time.monotonic() + STALL_SECONDS
                return
        if is_sending:
            self.cut(conn)
        elif conn.awaited is not None:
            self.unwatch(conn)
            self.refuse(conn, Refusal(Code.REQUEST_TIMEOUT, too_slow_message()))
        else:
            self.drop(conn)
