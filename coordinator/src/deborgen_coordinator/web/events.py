"""The history, newest first, by run, job or machine."""

from __future__ import annotations

from deborgen_coordinator.operations import history
from deborgen_coordinator.web.pages import PageRequest, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.queries import EventsQuery

#: A page shows this many events.
EVENTS_PER_PAGE = 60
#: A number above that of every event.
NEWEST = 2**53 - 1


@page("/events")
def list_events(request: PageRequest) -> HtmlAnswer:
    query = request.read(EventsQuery, limit=EVENTS_PER_PAGE, after=0)
    before = NEWEST if query.before is None else query.before
    found = history.list_events(request.ctx, request.read(EventsQuery, limit=EVENTS_PER_PAGE, after=0, before=before))
    return request.render("events.html", events=found.items, next=found.next)
