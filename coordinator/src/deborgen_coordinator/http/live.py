"""Live streams: answers that stay open and send what is new. One thread fills all of them, and waits for no reader.

A commit wakes the thread. It reads what is new once for all streams of a kind, and gives each stream its part, unless
the reader has not yet taken the previous part. So a slow reader falls behind without costing anything, and then catches
up by itself. A stream ends within a few seconds after its token was revoked or has expired, or its session was ended.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from deborgen_coordinator.operations.context import Actor, Context
from deborgen_coordinator.operations.sign_ins import may_go_on
from deborgen_coordinator.storage.database import DatabaseUnavailable

log = logging.getLogger("deborgen.streams")

#: The streams get something new at most once per this many seconds, even if there are more commits.
PAUSE_SECONDS = 0.05
#: Look for something new at least this often, even without a commit.
LOOK_SECONDS = 2.0
#: Send a comment after this many silent seconds, so that proxies do not close the stream.
COMMENT_SECONDS = 15.0


class Feed(ABC):
    """The content of one stream. It is used by one thread."""

    #: The first bytes of the answer, and what is sent when nothing has happened for a while.
    greeting = b""
    comment = b""
    #: Whether there is more to send at once, without waiting for a commit.
    is_behind = False

    @classmethod
    @abstractmethod
    def look(cls, ctx: Context, feeds: Sequence[Any]) -> None:
        """Read what is new, once for all these feeds of this kind."""

    @abstractmethod
    def more(self, ctx: Context) -> bytes | None:
        """What to send now, possibly nothing; None at the end."""


class Sink(Protocol):
    """The connection of a stream. The stream may send again when everything before has been sent."""

    def send(self, data: bytes) -> bool:
        """Send a piece. False if a part of it is unsent: the server sends that, then calls the stream's `resume`."""

    def close(self, *, at_end: bool) -> None:
        """Stop using the connection. `at_end` says that the stream is complete."""


class LiveStream:
    """The body of an answer that stays open. The server gives it its connection, and says when the client has left."""

    sink: Sink

    def __init__(self, streams: LiveStreams, feed: Feed, actor: Actor, on_close: Callable[[], None]) -> None:
        self._streams, self._on_close = streams, on_close
        self.feed, self.holder = feed, (actor.token_id, actor.sign_in)
        self.is_ready = True
        self.has_left = False
        self.sent_at = time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        """A server that does not know live streams sends nothing."""
        return iter(())

    @property
    def greeting(self) -> bytes:
        return self.feed.greeting

    def connect(self, sink: Sink) -> None:
        self.sink = sink
        self._streams.add(self)

    def resume(self) -> None:
        """The server has sent everything: the stream may send again."""
        self.is_ready = True
        self._streams.wake()

    def leave(self) -> None:
        """The client has left."""
        self.has_left = True
        self._streams.wake()

    def send(self, data: bytes) -> None:
        # `resume` may be called before `send` returns.
        self.is_ready = False
        if self.sink.send(data):
            self.is_ready = True
        self.sent_at = time.monotonic()

    def close(self) -> None:
        self._on_close()


class LiveStreams:
    """All open streams, and the thread that fills them."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._open: list[LiveStream] = []
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
        self._thread.start()

    def add(self, stream: LiveStream) -> None:
        with self._lock:
            self._open.append(stream)
            self._ctx.wakeups.bells.add(self._bell)
        self.wake()

    def wake(self) -> None:
        self._bell.set()

    def close(self) -> None:
        """End all streams, now and from now on."""
        self._closed.set()
        self.wake()

    def _run(self) -> None:
        while True:
            self._bell.clear()
            behind = False
            try:
                behind = self._fill_all()
            except Exception as error:
                log.warning("live streams wait for the database: %s: %s", type(error).__name__, error)
            if not behind:
                self._closed.wait(PAUSE_SECONDS)
                self._bell.wait(LOOK_SECONDS if self._open else None)

    def _fill_all(self) -> bool:
        """Give each stream what is new for it; return whether one of them has more to send at once."""
        with self._lock:
            streams = list(self._open)
        valid = {each: may_go_on(self._ctx, *each) for each in {stream.holder for stream in streams}}
        for stream in streams:
            if stream.has_left or self._closed.is_set() or not valid[stream.holder]:
                self._end(stream, at_end=stream.is_ready and not stream.has_left)
        ready = [stream for stream in self._open if stream.is_ready]
        for kind in {type(stream.feed) for stream in ready}:
            kind.look(self._ctx, [stream.feed for stream in ready if type(stream.feed) is kind])
        for stream in ready:
            self._fill(stream)
        return any(stream.is_ready and stream.feed.is_behind for stream in ready)

    def _fill(self, stream: LiveStream) -> None:
        try:
            data = stream.feed.more(self._ctx)
        except DatabaseUnavailable:
            raise
        except Exception:
            log.exception("a live stream failed")
            self._end(stream, at_end=False)
            return
        if data is None:
            self._end(stream, at_end=True)
        elif data:
            stream.send(data)
        elif stream.feed.comment and time.monotonic() - stream.sent_at >= COMMENT_SECONDS:
            stream.send(stream.feed.comment)

    def _end(self, stream: LiveStream, *, at_end: bool) -> None:
        with self._lock:
            self._open.remove(stream)
            if not self._open:
                self._ctx.wakeups.bells.discard(self._bell)
        stream.close()
        stream.sink.close(at_end=at_end)
