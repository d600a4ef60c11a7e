"""Logs: appended by workers at an offset, read by people as raw bytes, followed while they grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from flask import Response
from msgspec import Meta

from deborgen_coordinator.http import bodies
from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.query import Sequence
from deborgen_coordinator.http.routes import PEOPLE, RAW, WORKERS, Answer, Call, route
from deborgen_coordinator.http.streams import Streams, client_is_gone
from deborgen_coordinator.operations import logs
from deborgen_coordinator.operations.context import Context
from deborgen_shared import messages as m
from deborgen_shared.errors import Code

PIECE = 256 * 1024
#: New bytes wake a follower; it looks after its client, and for the end of the attempt, at least this often.
LOOK_SECONDS = 0.25


class LogQuery(msgspec.Struct, frozen=True):
    attempt: Annotated[int, Meta(ge=1, lt=10**9)] | None = None
    offset: Sequence = 0
    follow: Annotated[int, Meta(ge=0, le=1)] = 0


class AppendQuery(msgspec.Struct, frozen=True):
    offset: Sequence
    session: m.Token | None = None


@route(
    "GET", "/v1/jobs/{job}/log", roles=PEOPLE, query=LogQuery,
    answers={200: Answer("the bytes of the log", bytes, (RAW,), {
        "Deborgen-Log-Size": "how many bytes the log had when the answer began",
        "Deborgen-Log-Attempt": "which attempt's log it is",
    })},
    refusals=(Code.SLOW_DOWN,),
    summary="The log of the newest attempt, or of another, from an offset on. Followed, it streams until the end.",
)  # fmt: skip
def read(call: Call[None, LogQuery]) -> Response:
    q, job = call.query, call.job
    view = logs.view(call.ctx, *job, q.attempt)
    start = min(q.offset, view.size)
    headers = {
        "Deborgen-Log-Size": str(view.size),
        "Deborgen-Log-Attempt": str(view.attempt),
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    if q.follow and not view.ended:
        chunks = _follow(call.ctx, call.streams, call.environ, job, view.attempt, start)
        return Response(call.streams.live.open(chunks), 200, headers, content_type=RAW, direct_passthrough=True)
    headers["Content-Length"] = str(view.size - start)
    body = call.streams.send(_bytes(call.ctx, job, view.attempt, start, view.size), view.size - start)
    return Response(body, 200, headers, content_type=RAW, direct_passthrough=True)


@route(
    "POST", "/v1/jobs/{job}/attempts/{number}/log", roles=WORKERS, query=AppendQuery, body=bytes, grows=True,
    limit="max_log_chunk", headers={"Content-Encoding": "gzip, if the bytes are packed"},
    answers={200: Answer("how many bytes the log has now", m.LogSize)},
    refusals=(Code.STALE_ATTEMPT, Code.SUPERSEDED, Code.LOG_GAP),
    summary="Append bytes to the log of an attempt. What is there already is skipped; a gap is refused.",
)  # fmt: skip
def append(call: Call[None, AppendQuery]) -> m.LogSize:
    data = bodies.unpacked(call.environ, call.ctx.settings.max_log_chunk)
    if call.query.offset + len(data) >= 2**53:
        raise malformed("No log can be that long.")
    run, index = call.job
    return logs.append(
        call.ctx, call.actor, run, index, call.names["number"], call.query.offset, data, call.query.session
    )


def _bytes(ctx: Context, job: tuple[int, int], attempt: int, start: int, end: int) -> Iterator[bytes]:
    while start < end and (piece := logs.read(ctx, *job, attempt, start, min(PIECE, end - start))):
        start += len(piece)
        yield piece


def _follow(
    ctx: Context, streams: Streams, environ: dict[str, Any], job: tuple[int, int], attempt: int, start: int
) -> Iterator[bytes]:
    while not streams.closed:
        seen = ctx.wakeups.count("logs")
        # Look at the end before the bytes: what was written before the end is then seen for certain.
        view = logs.view(ctx, *job, attempt)
        for piece in _bytes(ctx, job, attempt, start, view.size):
            start += len(piece)
            yield piece
        if view.ended or client_is_gone(environ):
            return
        ctx.wakeups.wait("logs", seen, LOOK_SECONDS)
