"""The history: in pages, or live as server-sent events that resume without loss."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
from flask import Response

from deborgen_coordinator.http.answers import JSON
from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.query import JobName, Limit, RunNumber, Sequence
from deborgen_coordinator.http.routes import PEOPLE, Answer, Call, route
from deborgen_coordinator.http.streams import Streams, client_is_gone
from deborgen_coordinator.operations import events
from deborgen_coordinator.operations.context import Context
from deborgen_shared import messages as m
from deborgen_shared.errors import Code

EVENT_STREAM = "text/event-stream"
#: A comment after so much silence keeps proxies from closing the stream.
KEEP_ALIVE_SECONDS = 15.0
#: A stream looks after its client at least this often.
LOOK_SECONDS = 2.0


class EventsQuery(msgspec.Struct, frozen=True):
    after: Sequence = 0
    run: RunNumber | None = None
    job: JobName | None = None
    worker: m.Name | None = None
    limit: Limit = 100


@route(
    "GET", "/v1/events", roles=PEOPLE, query=EventsQuery,
    headers={
        "Accept": "text/event-stream, to be told live",
        "Last-Event-ID": "in a stream: the last event you have seen; it goes before `after`",
    },
    answers={200: Answer("events, oldest first; or a stream of them", m.Events, media=(JSON, EVENT_STREAM))},
    refusals=(Code.SLOW_DOWN,),
    summary="What happened, after a sequence number.",
)  # fmt: skip
def list_events(call: Call[None, EventsQuery]) -> m.Events | Response:
    q = call.query
    last = call.header("Last-Event-ID")
    if last is not None and not (last.isascii() and last.isdigit() and len(last) < 17 and int(last) < 2**53):
        raise malformed("The Last-Event-ID must be the number of an event.")
    if EVENT_STREAM not in (call.header("Accept") or ""):
        return events.list_events(call.ctx, after=q.after, run=q.run, job=q.job, worker=q.worker, limit=q.limit)
    after = q.after if last is None else int(last)
    chunks = _stream(call.ctx, call.streams, call.environ, after, q)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Response(call.streams.live.open(chunks), 200, headers, content_type=EVENT_STREAM, direct_passthrough=True)


def _stream(ctx: Context, streams: Streams, environ: dict[str, Any], after: int, q: EventsQuery) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    yield b"retry: 2000\n\n"
    spoke = time.monotonic()
    while not streams.closed:
        newest = events.newest(ctx)
        page = events.list_events(ctx, after=after, run=q.run, job=q.job, worker=q.worker, limit=1000)
        if page.items:
            after = page.items[-1].seq
            yield b"".join(b"id: %d\nevent: %s\ndata: %s\n\n" % (e.seq, e.type.encode(), encode(e)) for e in page.items)
            spoke = time.monotonic()
            continue
        # Nothing up to here is for this reader: it need not be looked at again.
        after = max(after, newest)
        if client_is_gone(environ):
            return
        if time.monotonic() - spoke >= KEEP_ALIVE_SECONDS:
            yield b": all quiet\n\n"
            spoke = time.monotonic()
        events.wait_for_events(ctx, after, LOOK_SECONDS)
