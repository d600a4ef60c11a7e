"""A program's own events. Each is accepted once, in order, while the attempt is live, and recorded in the history."""

from __future__ import annotations

from collections.abc import Sequence

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import EventCount, ProgramEvent, ProgramEvents
from deborgen_shared.program_events import EVENT_BYTES, JOB_EVENT, MOST_EVENTS, size_of

from ...storage import events
from ...storage.rows import HeldAttempt
from ..context import Actor, Context
from ..work import About, Work
from ..workers.sessions import AttemptId, find_own_attempt, refuse_stale


def append(ctx: Context, actor: Actor, attempt: AttemptId, body: ProgramEvents) -> EventCount:
    """Record the events that are new, in the transaction that counts them; refuse a gap before them.

    Events beyond the limit per attempt are counted and dropped, so that they are not sent again.
    """
    _check_sizes(body.events)

    def append_new(work: Work) -> int | None:
        held = find_own_attempt(work, attempt, body.session)
        if not (held.live and held.current):
            return None
        known = events.count_program_events(work.tx, held.job, held.number)
        first = known if body.first is None else body.first
        if first > known:
            raise Refusal(
                Code.EVENT_GAP,
                f"the attempt has {known} events, but these start at number {first}",
                f"send the events from number {known}",
                details={"count": known},
            )
        fresh = _fresh(body.events, first, known)
        if fresh:
            events.set_program_events(work.tx, held.job, held.number, known + len(fresh))
            _record(work, held, known, fresh)
        return known + len(fresh)

    count = ctx.work(actor, append_new)
    if count is None:
        raise refuse_stale(ctx, actor, attempt, "events")
    return EventCount(count=count, dropped=max(0, count - MOST_EVENTS))


def _check_sizes(events: Sequence[ProgramEvent | None]) -> None:
    for position, event in enumerate(events):
        if event is not None and (size := size_of(event)) > EVENT_BYTES:
            raise Refusal(
                Code.TOO_LARGE,
                f"events[{position}] has {size} bytes, but an event may have at most {EVENT_BYTES}",
                "write the large part to an artifact",
            )


def _fresh(events: Sequence[ProgramEvent | None], first: int, known: int) -> Sequence[ProgramEvent | None]:
    """The events that an attempt with this many known events does not have yet."""
    return events[known - first :]


def _record(work: Work, held: HeldAttempt, first: int, events: Sequence[ProgramEvent | None]) -> None:
    for number, event in enumerate(events, first):
        if event is not None and number < MOST_EVENTS:
            data = {"type": event.type, "payload": event.payload, "number": number}
            work.record(JOB_EVENT, About.attempt_of(held), data=data)
