"""Logs: workers append to them at an offset, people read them as raw bytes or follow them while they grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from flask import Response

from deborgen_coordinator.http import bodies
from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.http.streams import Streams, client_is_gone
from deborgen_coordinator.operations.attempts import logs
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_shared import contract, headers
from deborgen_shared import messages as m
from deborgen_shared.calls import RAW
from deborgen_shared.messages import Token
from deborgen_shared.queries import AppendQuery, LogQuery

PIECE = 256 * 1024
#: New bytes wake a follower. It checks at least this often whether the attempt has ended or the client is gone.
FOLLOW_CHECK_SECONDS = 0.25


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
        chunks = _follow(request.ctx, request.streams, request.environ, job, view.attempt, start)
        return Response(request.streams.live.open(chunks), 200, sent, content_type=RAW, direct_passthrough=True)
    sent[headers.CONTENT_LENGTH] = str(view.size - start)
    body = request.streams.send(_bytes(request.ctx, job, view.attempt, start, view.size), view.size - start)
    return Response(body, 200, sent, content_type=RAW, direct_passthrough=True)


@serves(contract.APPEND_LOG)
def append(request: CallRequest[None, AppendQuery]) -> m.LogSize:
    session = _session(request)
    data = bodies.unpacked(request.environ, request.ctx.settings.max_log_chunk)
    if request.query.offset + len(data) >= 2**53:
        raise malformed("no log can be that long")
    attempt = AttemptId(*request.job, request.names["number"])
    return logs.append(request.ctx, request.actor, attempt, request.query.offset, data, session)


def _session(request: CallRequest[None, AppendQuery]) -> str:
    """The session that sends the bytes. Workers of release 0.1 send it in a header."""
    given = request.query.session or request.header(headers.SESSION)
    if not given:
        raise malformed("log bytes need the session of their worker", "send it as the query parameter session")
    try:
        return msgspec.convert(given, Token)
    except msgspec.ValidationError as problem:
        raise malformed(f"the header {headers.SESSION} does not hold a session: {problem}") from None


def _bytes(ctx: Context, job: tuple[int, int], attempt: int, start: int, end: int) -> Iterator[bytes]:
    while start < end and (piece := logs.read(ctx, *job, attempt, start, min(PIECE, end - start))):
        start += len(piece)
        yield piece


def _follow(
    ctx: Context, streams: Streams, environ: dict[str, Any], job: tuple[int, int], attempt: int, start: int
) -> Iterator[bytes]:
    while not streams.closed:
        seen = ctx.wakeups.count("logs")
        # Check for the end before reading: bytes that were written before the end are then never missed.
        view = logs.view(ctx, *job, attempt)
        for piece in _bytes(ctx, job, attempt, start, view.size):
            start += len(piece)
            yield piece
        if view.ended or client_is_gone(environ):
            return
        ctx.wakeups.wait("logs", seen, FOLLOW_CHECK_SECONDS)
