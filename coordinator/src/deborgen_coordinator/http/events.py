"""The history, in pages or live as server-sent events that resume without loss; and the events of programs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from flask import Response
from msgspec.structs import replace

from deborgen_coordinator.http.decoding import malformed
from deborgen_coordinator.http.live import Feed
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations import cursors, history
from deborgen_coordinator.operations.attempts import pins, program_events
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_shared import contract, headers
from deborgen_shared import messages as m
from deborgen_shared.contract import EVENT_STREAM
from deborgen_shared.queries import EventsQuery, NoQuery

#: A stream gets at most this many events at once.
PAGE = 1000

_encode = msgspec.json.Encoder().encode


@serves(contract.LIST_EVENTS)
def list_events(request: CallRequest[None, EventsQuery]) -> m.Events | Response:
    q = request.query
    last = request.header(headers.LAST_EVENT_ID)
    if last is not None and not (last.isascii() and last.isdigit() and len(last) < 17 and int(last) < 2**53):
        raise malformed(f"the header {headers.LAST_EVENT_ID} must be the number of an event")
    if EVENT_STREAM not in (request.header(headers.ACCEPT) or ""):
        if isinstance(q.after, str):
            return m.Events(items=[], next=str(history.newest(request.ctx)))
        return history.list_events(request.ctx, q)
    after = int(last) if last is not None else history.newest(request.ctx) if isinstance(q.after, str) else q.after
    stream = request.streams.follow(request.actor, EventFeed(after, q))
    sent = {headers.CACHE_CONTROL: "no-store", headers.NO_BUFFERING: "no"}
    return Response(stream, 200, sent, content_type=EVENT_STREAM, direct_passthrough=True)


@serves(contract.APPEND_EVENTS)
def append(request: CallRequest[m.ProgramEvents, NoQuery]) -> m.EventCount:
    attempt = AttemptId(*request.job, request.names["number"])
    return program_events.append(request.ctx, request.actor, attempt, request.body)


@serves(contract.PIN_COMMIT)
def pin_commit(request: CallRequest[m.CommitToPin, NoQuery]) -> m.PinnedCommit:
    attempt = AttemptId(*request.job, request.names["number"])
    return pins.pin(request.ctx, request.actor, attempt, request.body)


@serves(contract.GET_CURSOR)
def get_cursor(request: CallRequest[None, NoQuery]) -> m.CursorView:
    return cursors.get(request.ctx, request.actor, request.names["cursor"])


@serves(contract.PUT_CURSOR)
def put_cursor(request: CallRequest[m.NewCursor, NoQuery]) -> m.CursorView:
    return cursors.put(request.ctx, request.actor, request.names["cursor"], request.body)


class EventFeed(Feed):
    """The events after a number that match a query, as server-sent events."""

    greeting = b"retry: 2000\n\n"
    comment = b": all quiet\n\n"

    def __init__(self, after: int, query: EventsQuery) -> None:
        self._after, self._query = after, query
        self._frames: list[bytes] = []

    @classmethod
    def look(cls, ctx: Context, feeds: Sequence[EventFeed]) -> None:
        """Feeds that are up to date share one page. Each feed that is behind has a page of its own."""
        newest = history.newest(ctx)
        current = max((feed._after for feed in feeds if feed._after <= newest), default=newest)
        page = _page(ctx, current, EventsQuery()) if current < newest else []
        reached = page[-1][0].seq if page else current
        for feed in feeds:
            feed.is_behind = False
            if feed._after < current:
                own = _page(ctx, feed._after, feed._query)
                feed.is_behind = len(own) == PAGE
                # A page that is not full ends with the newest event: then this feed is as far as the others.
                feed._after = own[-1][0].seq if feed.is_behind else max(reached, own[-1][0].seq if own else 0)
                feed._frames = [frame for _, frame in own]
            elif feed._after == current:
                feed.is_behind = len(page) == PAGE
                feed._after = reached
                feed._frames = [frame for event, frame in page if feed._wants(event)]

    def _wants(self, event: m.Event) -> bool:
        q = self._query
        return (
            (q.run is None or q.run == event.run)
            and (q.job is None or q.job == event.job)
            and (q.worker is None or q.worker == event.worker)
        )

    def more(self, ctx: Context) -> bytes:
        frames, self._frames = self._frames, []
        return b"".join(frames)


def _page(ctx: Context, after: int, q: EventsQuery) -> list[tuple[m.Event, bytes]]:
    """The next events that match a query, each with its frame in the stream."""
    found = history.list_events(ctx, replace(q, after=after, before=None, limit=PAGE))
    return [(e, b"id: %d\nevent: %s\ndata: %s\n\n" % (e.seq, e.type.encode(), _encode(e))) for e in found.items]
