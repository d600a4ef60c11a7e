"""The history, by cursor, and waiting for more of it."""

from __future__ import annotations

from deborgen_shared.messages import Event, Events

from .. import ids
from ..storage import events
from . import views
from .context import Context


def list_events(
    ctx: Context, *, after: int, run: int | None, job: str | None, worker: str | None, limit: int
) -> Events:
    """Events with a number above `after`, oldest first; `next` is where to go on."""
    key = ids.parse_attempt(f"{job}/1")[0] if job else None
    rows = ctx.store.read(
        lambda reader: events.select(reader, after=after, run=run, job=key, worker=worker, limit=limit)
    )
    items = []
    for seq, time, type_, job_id, attempt, worker_name, actor, old, new, data in rows:
        index = ids.index_of(job_id) if job_id is not None else 0
        items.append(
            Event(
                seq=seq,
                time=views.when(time),
                type=type_,
                run=ids.run_of(job_id) if job_id is not None else None,
                job=ids.name(job_id) if index else None,
                attempt=ids.attempt_name(job_id, attempt) if index and attempt is not None else None,
                worker=worker_name,
                actor=actor,
                old_state=old,
                new_state=new,
                data=views.loads(data) or {},
            )
        )
    return Events(items=items, next=str(items[-1].seq) if len(items) == limit else None)


def wait_for_events(ctx: Context, after: int, timeout: float) -> None:
    """Return when there are events above `after`, when the time is up, or when the server stops."""
    seen = ctx.wakeups.count("events")
    if ctx.store.read(events.newest) <= after:
        ctx.wakeups.wait("events", seen, timeout)


def newest(ctx: Context) -> int:
    """The number of the last event."""
    return ctx.store.read(events.newest)
