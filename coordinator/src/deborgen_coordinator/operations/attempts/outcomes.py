"""How attempts end: what each outcome means for the job, for the worker, and for the submitter's account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deborgen_shared.states import INFRASTRUCTURE_FAILURES, Outcome, State

from ...leases import POISON_MACHINES, Ended, Verdict, rest, verdict
from ...lifecycle import Event
from ...storage import attempts, workers
from ...storage.rows import HeldAttempt, WorkerRow
from ...storage.transactions import Tx
from ..work import About, Ending, Work

#: How many past attempts to examine for machines that lost this job.
LOOK_BACK = 50


def judge(work: Work, held: HeldAttempt, outcome: Outcome, reason: str, *, lost: bool = False) -> Verdict:
    """What the end of this attempt means for its job. `lost`: its worker has not said how it ended."""
    ctx, tx = work.ctx, work.tx
    found = ctx.catalog.spec(tx, held.spec_id)
    given_back = outcome is Outcome.RELEASED
    return verdict(
        Ended(
            outcome,
            reason=held.cancel_reason if held.cancel_requested and not reason else reason,
            attempts=held.job_attempts,
            max_attempts=found.job.max_attempts,
            retry_program=found.job.retry.program,
            backoff=found.job.retry.backoff,
            cancel_requested=held.cancel_requested,
            lost_on=lost_on(tx, held) if lost else 0,
            elsewhere=given_back and ctx.fleet.another_could(ctx.catalog.needs(tx, found.class_id), held.worker),
        )
    )


def may_resume(held: HeldAttempt, worker_id: int, session: str) -> bool:
    """Whether an attempt that was given up can be taken up again: nobody has claimed its job since."""
    return (
        held.given_up
        and held.worker_id == worker_id
        and held.session == session
        and held.current
        and held.job_state is State.QUEUED
        and not held.cancel_requested
    )


def lost_on(tx: Tx, held: HeldAttempt) -> int:
    """On how many different machines in a row this job was lost, the one that has just lost it included.

    A machine that took the job and never named it again counts too: perhaps the job killed it in its first second.
    """
    machines = {held.worker_id}
    for worker_id, outcome, named in attempts.recent_outcomes(tx, held.job, LOOK_BACK):
        if outcome is None or (outcome == Outcome.RELEASED and named):
            continue
        if outcome not in (Outcome.LOST, Outcome.RELEASED) or len(machines) >= POISON_MACHINES:
            break
        machines.add(worker_id)
    return len(machines)


def give_up(
    work: Work, held: Sequence[HeldAttempt], reason: str, *, release: bool = False, expired: bool = False
) -> list[HeldAttempt]:
    """End live attempts: because their leases `expired`, because their worker gives them back (`release`), or because
    it has restarted without them. Returns those that count against the machine.

    An attempt that no heartbeat and no result has ever named most likely never started: it costs no attempt. But if its
    lease has expired, it counts as lost for poison.
    """
    counted = []
    for attempt in held:
        outcome = Outcome.RELEASED if release or not attempt.named else Outcome.LOST
        lost = expired or outcome is Outcome.LOST
        judged = judge(work, attempt, outcome, reason, lost=lost)
        if judged.event is Event.FAILED:
            outcome = Outcome.LOST
        if expired:
            work.record("lease.expired", About.held(attempt))
        seconds = max(0.0, work.clock - attempt.granted_clock)
        charge(work, attempt, seconds)
        work.conclude(attempt, judged, Ending(outcome, reason, seconds, named=not expired))
        if lost:
            counted.append(attempt)
    return counted


def release_all(work: Work, worker: WorkerRow, reason: str) -> None:
    """End what a worker holds, because it gives it back."""
    give_up(work, attempts.held_by(work.tx, worker.id), reason, release=True)


def charge(work: Work, held: HeldAttempt, seconds: float) -> None:
    """Add what an attempt used to its submitter's account, in seconds times cpus; for the fair order."""
    if work.ctx.settings.scheduler == "fair" and seconds > 0:
        cpus = work.ctx.catalog.spec(work.tx, held.spec_id).job.resources.cpus
        attempts.charge(work.tx, held.submitter_id, seconds * max(cpus, 0.001))


def note_stale(work: Work, held: HeldAttempt, data: dict[str, Any]) -> None:
    """Note that something came for an attempt that is over; `data` says what."""
    attempts.mark_stale(work.tx, held.job, held.number)
    work.record("result.stale", About.held(held), data=data)


def count_failures(work: Work, worker: WorkerRow, outcomes: Sequence[Outcome]) -> None:
    """Keep the worker's run of infrastructure failures, and send it to rest when there were too many in a row.

    What was lost together (a machine that went to sleep with eight jobs) counts as one failure: pass it once.
    """
    failures, rests, rest_clock = worker.failures, worker.rests, worker.rest_clock
    for outcome in outcomes:
        if outcome in INFRASTRUCTURE_FAILURES:
            failures += 1
            pause = rest(failures, rests)
            if pause:
                failures, rests, rest_clock = 0, rests + 1, work.clock + pause
                data = {"reason": "too many infrastructure failures in a row", "rest_seconds": pause}
                work.record("worker.paused", About(worker=worker.name), data=data)
        elif outcome not in (Outcome.RELEASED, Outcome.CANCELED):
            failures = rests = 0
    if (failures, rests, rest_clock) != (worker.failures, worker.rests, worker.rest_clock):
        workers.set_failures(work.tx, worker.id, failures, rests, rest_clock)
