"""Cancel jobs: queued jobs at once, running jobs with the next heartbeat of their worker."""

from __future__ import annotations

from deborgen_shared.messages import CancelAnswer
from deborgen_shared.states import CancelEffect

from ... import ids
from ...storage import jobs, runs
from ..context import Actor, Context
from ..lookup import check_may_change, find_job, find_run
from ..work import About, Work


def cancel_run(ctx: Context, actor: Actor, run: int, reason: str) -> CancelAnswer:
    def cancel(work: Work) -> CancelAnswer:
        answer = _cancel(work, run, ids.span(run), reason)
        runs.mark_canceled(work.tx, run)
        return answer

    return ctx.work(actor, cancel)


def cancel_job(ctx: Context, actor: Actor, run: int, index: int, reason: str) -> CancelAnswer:
    def cancel(work: Work) -> CancelAnswer:
        key = find_job(work.tx, run, index).id
        return _cancel(work, run, (key, key), reason)

    return ctx.work(actor, cancel)


def _cancel(work: Work, run: int, span: tuple[int, int], reason: str) -> CancelAnswer:
    """Cancel the jobs of a run in a span of ids. The answer says what happened to each job."""
    owner = find_run(work.tx, run)
    check_may_change(work.actor, owner)
    why = reason or f"canceled by {work.actor.name}"
    jobs.lock_unfinished(work.tx, *span, has_loops=owner.next_index > 0)
    fresh, before = jobs.request_cancel(work.tx, *span, why)
    for job in fresh:
        work.record("job.cancel_requested", About(job), data={"reason": why})
    answer = dict.fromkeys(jobs.ended_in_span(work.tx, *span), CancelEffect.ALREADY_TERMINAL)
    answer |= dict.fromkeys([*fresh, *before], CancelEffect.CANCEL_REQUESTED)
    answer |= dict.fromkeys(work.cancel_queued(*span, why), CancelEffect.CANCELED)
    return CancelAnswer(jobs={ids.name(job): answer[job] for job in sorted(answer)})
