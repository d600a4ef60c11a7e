"""The history, in pages or live as server-sent events that resume without loss; and the events of programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
from flask import Response

from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.http.streams import Streams, client_is_gone
from deborgen_coordinator.operations import history
from deborgen_coordinator.operations.attempts import program_events
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_shared import contract, headers
from deborgen_shared import messages as m
from deborgen_shared.contract import EVENT_STREAM
from deborgen_shared.queries import EventsQuery, NoQuery

#: Send a comment after this many silent seconds, so that proxies do not close the stream.
KEEP_ALIVE_SECONDS = 15.0
#: Check at least this often whether the client is still connected.
CLIENT_CHECK_SECONDS = 2.0


@serves(contract.LIST_EVENTS)
def list_events(request: CallRequest[None, EventsQuery]) -> m.Events | Response:
    q = request.query
    last = request.header(headers.LAST_EVENT_ID)
    if last is not None and not (last.isascii() and last.isdigit() and len(last) < 17 and int(last) < 2**53):
        raise malformed(f"the header {headers.LAST_EVENT_ID} must be the number of an event")
    if EVENT_STREAM not in (request.header(headers.ACCEPT) or ""):
        if isinstance(q.after, str):
            return m.Events(items=[], next=str(history.newest(request.ctx)))
        return history.list_events(request.ctx, after=q.after, run=q.run, job=q.job, worker=q.worker, limit=q.limit)
    after = int(last) if last is not None else history.newest(request.ctx) if isinstance(q.after, str) else q.after
    chunks = _stream(request.ctx, request.streams, request.environ, after, q)
    sent = {headers.CACHE_CONTROL: "no-store", headers.NO_BUFFERING: "no"}
    return Response(request.streams.live.open(chunks), 200, sent, content_type=EVENT_STREAM, direct_passthrough=True)


@serves(contract.APPEND_EVENTS)
def append(request: CallRequest[m.ProgramEvents, NoQuery]) -> m.EventCount:
    attempt = AttemptId(*request.job, request.names["number"])
    return program_events.append(request.ctx, request.actor, attempt, request.body)


def _stream(ctx: Context, streams: Streams, environ: dict[str, Any], after: int, q: EventsQuery) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    yield b"retry: 2000\n\n"
    spoke = time.monotonic()
    while not streams.closed:
        newest = history.newest(ctx)
        page = history.list_events(ctx, after=after, run=q.run, job=q.job, worker=q.worker, limit=1000)
        if page.items:
            after = page.items[-1].seq
            yield b"".join(b"id: %d\nevent: %s\ndata: %s\n\n" % (e.seq, e.type.encode(), encode(e)) for e in page.items)
            spoke = time.monotonic()
            continue
        # No event up to this one matches the reader's filters: skip them all next time.
        after = max(after, newest)
        if client_is_gone(environ):
            return
        if time.monotonic() - spoke >= KEEP_ALIVE_SECONDS:
            yield b": all quiet\n\n"
            spoke = time.monotonic()
        history.wait_for_events(ctx, after, CLIENT_CHECK_SECONDS)
