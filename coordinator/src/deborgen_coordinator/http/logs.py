"""Logs: workers append bytes at an offset; people read them, or follow them while they grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from flask import Response

from deborgen_coordinator.http import bodies
from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.live import Feed
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations.attempts import logs
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_shared import contract, headers
from deborgen_shared import messages as m
from deborgen_shared.calls import RAW, JobId
from deborgen_shared.messages import OpaqueId
from deborgen_shared.queries import AppendQuery, LogQuery

PIECE = 256 * 1024


@serves(contract.READ_LOG)
def read(request: CallRequest[None, LogQuery]) -> Response:
    q, job = request.query, request.job
    view = logs.view(request.ctx, *job, q.attempt)
    start = min(q.offset, view.size)
    sent = {
        headers.LOG_SIZE: str(view.size),
        headers.LOG_ATTEMPT: str(view.attempt),
        headers.CONTENT_TYPE_OPTIONS: "nosniff",
        headers.CACHE_CONTROL: "no-store",
    }
    if q.follow and not view.ended:
        stream = request.streams.follow(request.actor, LogFeed(job, view.attempt, start))
        return Response(stream, 200, sent, content_type=RAW, direct_passthrough=True)
    sent[headers.CONTENT_LENGTH] = str(view.size - start)
    body = request.streams.send(request.actor, _bytes(request.ctx, job, view.attempt, start, view.size))
    return Response(body, 200, sent, content_type=RAW, direct_passthrough=True)


@serves(contract.APPEND_LOG)
def append(request: CallRequest[None, AppendQuery]) -> m.LogSize:
    session = _session(request)
    data = bodies.read_unpacked(request.environ, request.ctx.settings.max_log_chunk)
    if request.query.offset + len(data) >= 2**53:
        raise malformed("a log cannot have 2^53 bytes or more")
    attempt = AttemptId(*request.job, request.names["number"])
    return logs.append(request.ctx, request.actor, attempt, request.query.offset, data, session)


def _session(request: CallRequest[None, AppendQuery]) -> str:
    """The session that sends the bytes. Workers of release 0.1 send it in a header."""
    given = request.query.session or request.header(headers.SESSION)
    if not given:
        raise malformed("log bytes need the session of their worker", "send it as the query parameter session")
    try:
        return msgspec.convert(given, OpaqueId)
    except msgspec.ValidationError as problem:
        raise malformed(f"the header {headers.SESSION} does not hold a session: {problem}") from None


def _bytes(ctx: Context, job: tuple[int, int], attempt: int, start: int, end: int) -> Iterator[bytes]:
    while start < end and (piece := logs.read(ctx, *job, attempt, start, min(PIECE, end - start))):
        start += len(piece)
        yield piece


class LogFeed(Feed):
    """The log of one attempt while it grows. A job without an attempt is followed from its first one."""

    def __init__(self, job: JobId, attempt: int, start: int) -> None:
        self._job, self._attempt, self._start = job, attempt or 1, start
        self._view: logs.LogView | None = None

    @classmethod
    def look(cls, ctx: Context, feeds: Sequence[LogFeed]) -> None:
        views = logs.views(ctx, {feed._job for feed in feeds})
        for feed in feeds:
            feed._view = views.get((feed._job, feed._attempt))

    def more(self, ctx: Context) -> bytes | None:
        # The view is older than the bytes: if it says that the log has ended, its size counts every byte.
        view = self._view or logs.view(ctx, *self._job, None)
        piece = b""
        if view.size > self._start:
            piece = logs.read(ctx, *self._job, self._attempt, self._start, min(PIECE, view.size - self._start))
        self._start += len(piece)
        self.is_behind = bool(piece) and (view.ended or view.size > self._start)
        return None if view.ended and not piece else piece
