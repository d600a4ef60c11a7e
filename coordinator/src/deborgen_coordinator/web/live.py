"""News for open pages: a stream that says when something has changed that a page shows. The page then loads its parts
again. It runs on the thread of all live streams."""

from __future__ import annotations

import time

from flask import Response

from deborgen_coordinator.http.events import EventFeed
from deborgen_coordinator.operations import history
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.web.pages import PageRequest, page
from deborgen_shared import headers
from deborgen_shared.contract import EVENT_STREAM
from deborgen_shared.queries import EventsQuery

#: A page hears at most this often that something has changed.
PAUSE_SECONDS = 1.0


class NewsFeed(EventFeed):
    """Says that there are events which match a query, and not which ones."""

    _changed = False
    _said_at = 0.0

    def more(self, ctx: Context) -> bytes:
        self._changed = self._changed or bool(super().more(ctx))
        now = time.monotonic()
        if not self._changed or now - self._said_at < PAUSE_SECONDS:
            return b""
        self._changed, self._said_at = False, now
        return b"event: news\ndata: \n\n"


@page("/live")
def live(request: PageRequest) -> Response:
    feed = NewsFeed(history.newest(request.ctx), request.read(EventsQuery))
    stream = request.streams.follow(request.actor, feed)
    sent = {headers.CACHE_CONTROL: "no-store", headers.NO_BUFFERING: "no"}
    return Response(stream, 200, sent, content_type=EVENT_STREAM, direct_passthrough=True)
