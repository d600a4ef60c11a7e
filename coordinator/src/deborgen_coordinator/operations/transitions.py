"""The only place that moves a job from one state to another: one function a transition.

Each asks the table in lifecycle.py, then changes the job, its attempt, the counts of its run and the history in the
transaction it was given. A job that is not in the state the caller saw any more is refused, never overwritten.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from deborgen_shared.messages import Result
from deborgen_shared.states import Outcome, State

from .. import ids
from ..leases import Verdict
from ..lifecycle import Event, InvalidTransition, advance
from ..storage import attempts, jobs, runs, specs
from ..storage.rows import Held, StepRow
from ..storage.transactions import Tx
from .context import Actor, Context
from .history import record

T = TypeVar("T")

#: A job that a machine could not run, or gave back, is kept from that machine for this many seconds.
AVOID_SECONDS = 60.0
#: What happens to a job that ends in a state.
ENDS = {State.SUCCEEDED: Event.SUCCEEDED, State.FAILED: Event.FAILED, State.CANCELED: Event.CANCELED}


@dataclass
class Changes:
    """What a transaction's transitions add up to for runs and steps; `settle` applies it."""

    counts: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    ended: defaultdict[tuple[int, int], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def moved(self, job: int, old: State, new: State) -> None:
        counter = self.counts[ids.run_of(job)]
        counter[old] -= 1
        counter[new] += 1


class Refused(InvalidTransition):
    """A move that was refused: whose job it was about, and who wanted it."""

    def __init__(
        self, state: State, event: Event, actor: Actor, job: int, attempt: int | None = None, worker: str | None = None
    ) -> None:
        super().__init__(state, event)
        self.actor, self.job, self.attempt, self.worker = actor, job, attempt, worker


def write(ctx: Context, work: Callable[[Tx], T]) -> T:
    """Commit work that moves jobs.

    A move that was refused is undone with all of its work, so the refusal goes into the history in a transaction of its
    own.
    """
    try:
        return ctx.store.write(work)
    except Refused as refused:
        now = ctx.clock.wall()
        ctx.store.write(lambda tx, refused=refused: _record_refused(tx, refused, now))  # type: ignore[misc]
        raise


def _record_refused(tx: Tx, refused: Refused, now: float) -> None:
    record(
        tx, now, "transition.refused", refused.actor, job=refused.job, attempt=refused.attempt, worker=refused.worker,
        old=refused.state, data={"event": refused.event},
    )  # fmt: skip


def _advance(held: Held, event: Event, actor: Actor) -> State:
    try:
        return advance(held.job_state, event)
    except InvalidTransition:
        raise _refused(held, event, actor) from None


def _refused(held: Held, event: Event, actor: Actor) -> Refused:
    return Refused(held.job_state, event, actor, held.job, held.number, held.worker)


def start(
    tx: Tx, changes: Changes, actor: Actor, picked: Sequence[tuple[int, int]], worker_id: int, worker: str, now: float,
    expires_at: datetime,
) -> None:  # fmt: skip
    """queued → running: the jobs, each with the number of its new attempt. The attempts' rows are the caller's."""
    state = advance(State.QUEUED, Event.CLAIMED)
    if jobs.start(tx, [job for job, _ in picked], worker_id, now) != len(picked):
        raise Refused(State.RUNNING, Event.CLAIMED, actor, _not_started(tx, picked, worker), worker=worker)
    lease = {"lease_expires_at": expires_at}
    for job, number in picked:
        changes.moved(job, State.QUEUED, state)
        record(tx, now, "lease.granted", actor, job=job, attempt=number, worker=worker, data=lease)
        record(tx, now, "job.started", actor, job=job, attempt=number, worker=worker, old=State.QUEUED, new=state)


def _not_started(tx: Tx, picked: Sequence[tuple[int, int]], worker: str) -> int:
    """The first of the picked jobs that the worker did not get."""
    for job, number in picked:
        row = jobs.get(tx, job)
        if row is None or row.state is not State.RUNNING or (row.last_attempt, row.worker) != (number, worker):
            return job
    return picked[0][0]


def resume(tx: Tx, changes: Changes, actor: Actor, held: Held, session: str, lease_clock: float, now: float) -> None:
    """queued → running: the worker that had been given up is back before anybody else took the job."""
    state = _advance(held, Event.RESUMED, actor)
    if not jobs.resume(tx, held.job, held.number, held.worker_id, held.claimed_at, count=held.never_named):
        raise _refused(held, Event.RESUMED, actor)
    attempts.resume(tx, held.job, held.number, session, lease_clock)
    changes.moved(held.job, State.QUEUED, state)
    record(
        tx,
        now,
        "lease.resumed",
        actor,
        job=held.job,
        attempt=held.number,
        worker=held.worker,
        old=State.QUEUED,
        new=state,
    )


def begin(tx: Tx, actor: Actor, held: Held, seconds_ago: float | None, now: float) -> float | None:
    """When the program of an attempt began, by its worker's word; the first word counts, and goes into the history.

    The caller stores this moment together with its other changes to the attempt.
    """
    if seconds_ago is None or held.began_at is not None:
        return held.began_at
    began_at = min(now, max(held.claimed_at, now - seconds_ago))
    data = {"started_at": datetime.fromtimestamp(began_at, UTC)}
    record(tx, now, "attempt.started", actor, job=held.job, attempt=held.number, worker=held.worker, data=data)
    return began_at


def conclude(
    tx: Tx,
    changes: Changes,
    actor: Actor,
    held: Held,
    outcome: Outcome,
    verdict: Verdict,
    *,
    now: float,
    clock: float,
    reason: str = "",
    seconds: float | None = None,
    result: Result | None = None,
    result_json: str | None = None,
    warnings_json: str | None = None,
    digest: str | None = None,
    named: bool = False,
    began_at: float | None = None,
) -> None:
    """running → queued, succeeded, failed or canceled: an attempt has ended, and with it this turn of its job."""
    ended = attempts.end(
        tx,
        held.job,
        held.number,
        outcome,
        reason=reason,
        now=now,
        exit_code=result.exit_code if result else None,
        seconds=seconds,
        cpu_seconds=result.cpu_seconds if result else None,
        peak_memory=result.peak_memory if result else None,
        image=result.image if result else "",
        digest=digest,
        log_told=result.log_size if result else None,
        named=named or result is not None,
        began_at=began_at if began_at is not None else held.began_at,
    )
    if not ended:
        raise _refused(held, Event.REQUEUED if verdict.state is State.QUEUED else ENDS[verdict.state], actor)
    if verdict.state is State.QUEUED:
        _requeue(tx, changes, actor, held, outcome, verdict, now, clock)
    else:
        state = _advance(held, ENDS[verdict.state], actor)
        done = jobs.finish(
            tx,
            held.job,
            held.number,
            state,
            reason=verdict.reason,
            exit_code=result.exit_code if result else None,
            result=result_json,
            warnings=warnings_json,
            now=now,
        )
        if not done:
            raise _refused(held, ENDS[verdict.state], actor)
        changes.moved(held.job, held.job_state, state)
        changes.ended[ids.run_of(held.job), held.job_step][state] += 1
        data = {"outcome": outcome.value}
        if verdict.reason:
            data["reason"] = verdict.reason
        record(
            tx,
            now,
            f"job.{state}",
            actor,
            job=held.job,
            attempt=held.number,
            worker=held.worker,
            old=held.job_state,
            new=state,
            data=data,
        )


def _requeue(
    tx: Tx,
    changes: Changes,
    actor: Actor,
    held: Held,
    outcome: Outcome,
    verdict: Verdict,
    now: float,
    clock: float,
) -> None:
    state = _advance(held, Event.REQUEUED, actor)
    wait_clock = clock + verdict.backoff if verdict.backoff > 0 else None
    done = jobs.requeue(
        tx,
        held.job,
        held.number,
        reason=verdict.reason,
        refund=verdict.refund,
        wait_clock=wait_clock,
        avoid=held.worker_id if verdict.avoid else 0,
        avoid_clock=clock + verdict.backoff + AVOID_SECONDS,
    )
    if not done:
        raise _refused(held, Event.REQUEUED, actor)
    changes.moved(held.job, held.job_state, state)
    if outcome is Outcome.RELEASED:
        record(
            tx, now, "lease.released", actor, job=held.job, attempt=held.number, worker=held.worker,
            data={"reason": verdict.reason} if verdict.reason else None,
        )  # fmt: skip
    record(
        tx,
        now,
        f"job.{state}",
        actor,
        job=held.job,
        attempt=held.number,
        worker=held.worker,
        old=held.job_state,
        new=state,
        data={"outcome": outcome.value, "reason": verdict.reason, "backoff_seconds": verdict.backoff},
    )
    if wait_clock is None:
        tx.wake("jobs")


def cancel_queued(
    tx: Tx,
    changes: Changes,
    actor: Actor,
    first: int,
    last: int,
    reason: str,
    now: float,
    *,
    because_of: str | None = None,
) -> list[int]:
    """queued → canceled: every queued job in that span of keys. A promise: none of them will start.

    `because_of` is the step that they need and that did not succeed; None if somebody asked for the cancel.
    """
    state = advance(State.QUEUED, Event.CANCELED)
    canceled = jobs.cancel_queued(tx, first, last, reason, now)
    data = ({"reason": reason} if reason else {}) | ({"step": because_of} if because_of is not None else {})
    for job, step in canceled:
        changes.moved(job, State.QUEUED, state)
        changes.ended[ids.run_of(job), step][state] += 1
        record(tx, now, f"job.{state}", actor, job=job, old=State.QUEUED, new=state, data=data)
    return [job for job, _ in canceled]


def settle(tx: Tx, changes: Changes, actor: Actor, now: float) -> None:
    """Carry the moves on to the runs and the steps: the next steps are let go, or canceled with the one they need."""
    while changes.ended:
        (run, number), states = changes.ended.popitem()
        if not specs.finish_jobs_of_only_step(tx, run, states.total()):
            _settle_step(tx, changes, actor, specs.steps(tx, run, lock=True), number, states, now)
    runs.move(tx, changes.counts, now)
    changes.counts.clear()


def _settle_step(
    tx: Tx, changes: Changes, actor: Actor, steps: list[StepRow], number: int, states: Counter[str], now: float
) -> None:
    step = next(step for step in steps if step.number == number)
    left = specs.finish_jobs_of_step(tx, step.run, number, sum(states.values()))
    following = [other for other in steps if step.name in other.needs]
    if states[State.SUCCEEDED] != sum(states.values()):
        for other in following:
            first, last = ids.key(other.run, other.first_index), ids.key(other.run, other.last_index)
            reason = f"step '{step.name}', which it needs, did not succeed"
            cancel_queued(tx, changes, actor, first, last, reason, now, because_of=step.name)
    elif left == 0:
        for other in following:
            if specs.lift_blocker(tx, other.run, other.number) == 0:
                first, last = ids.key(other.run, other.first_index), ids.key(other.run, other.last_index)
                if jobs.unblock(tx, first, last):
                    tx.wake("jobs")
