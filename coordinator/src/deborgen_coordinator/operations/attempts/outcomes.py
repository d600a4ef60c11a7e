"""How attempts end: what each outcome means for the job, for the worker, and for the submitter's usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deborgen_shared.states import Outcome, State

from ...leases import POISON_MACHINES, EndedAttempt, Verdict, verdict
from ...lifecycle import LifecycleEvent
from ...placement import LEAST_CHARGED_CPUS
from ...storage import attempts, rounds
from ...storage.rows import HeldAttempt, WorkerRow
from ...storage.transactions import Tx
from ..work import About, AttemptEnding, Work

#: Examine at most this many past attempts to count the machines that lost this job.
LOOK_BACK = 50


def judge(
    work: Work, held: HeldAttempt, outcome: Outcome, reason: str, *, lost: bool = False, says_no: bool = False
) -> Verdict:
    """What the end of this attempt means for its job. `lost` says that its worker did not report the end; `says_no`
    that its program ended by itself with a nonzero exit code."""
    ctx, tx = work.ctx, work.tx
    found = ctx.spec_cache.spec(tx, held.spec_id)
    repeat = found.job.repeat
    return verdict(
        EndedAttempt(
            outcome,
            reason=reason,
            attempts=held.job_attempts,
            max_attempts=found.job.max_attempts,
            retry_program=found.job.retry.program,
            backoff=found.job.retry.backoff,
            cancel_requested=held.cancel_requested,
            cancel_reason=held.cancel_reason if held.cancel_requested else "",
            lost_on=lost_on(tx, held) if lost else 0,
            place=rounds.place_of(tx, held.job) if repeat else None,
            most=repeat.most if repeat else 0,
            says_no=says_no,
        )
    )


def may_resume(held: HeldAttempt, worker_id: int, session: str) -> bool:
    """Whether this session of the worker can resume an attempt that the coordinator gave up.

    It can if it held the attempt, and if nobody has claimed or canceled the job since.
    """
    return (
        held.given_up
        and held.worker_id == worker_id
        and held.session == session
        and held.current
        and held.job_state is State.QUEUED
        and not held.cancel_requested
    )


def lost_on(tx: Tx, held: HeldAttempt) -> int:
    """The number of different machines in a row that lost this job, including the current one.

    A machine counts even if it never mentioned the job after claiming it: the job may have crashed it at once.
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
    it restarted without them. Return the attempts that count as failures of the machine.

    If no heartbeat or result has named an attempt, it most likely never started. So it does not use up one of the job's
    attempts. But if its lease has expired, it counts as lost when deciding whether the job is poisoned.
    """
    counted = []
    for attempt in held:
        outcome = Outcome.RELEASED if release or not attempt.named else Outcome.LOST
        lost = expired or outcome is Outcome.LOST
        judged = judge(work, attempt, outcome, reason, lost=lost)
        if judged.event is LifecycleEvent.FAILED:
            outcome = Outcome.LOST
        if expired:
            work.record("lease.expired", About.attempt_of(attempt))
        seconds = max(0.0, work.clock - attempt.granted_clock)
        charge(work, attempt, seconds)
        work.conclude(attempt, judged, AttemptEnding(outcome, reason, seconds, named=not expired))
        if lost:
            counted.append(attempt)
    return counted


def release_all(work: Work, worker: WorkerRow, reason: str) -> None:
    """Release all attempts that a worker holds."""
    give_up(work, attempts.held_by(work.tx, worker.id), reason, release=True)


def charge(work: Work, held: HeldAttempt, seconds: float) -> None:
    """Add an attempt's usage to its submitter's total, in seconds times cpus; for the fair scheduler."""
    if work.ctx.settings.scheduler == "fair" and seconds > 0:
        cpus = work.ctx.spec_cache.spec(work.tx, held.spec_id).job.resources.cpus
        attempts.charge(work.tx, held.submitter_id, seconds * max(cpus, LEAST_CHARGED_CPUS))


def note_stale(work: Work, held: HeldAttempt, data: dict[str, Any]) -> None:
    """Record that something arrived for an attempt that has ended; `data` says what."""
    attempts.mark_stale(work.tx, held.job, held.number)
    work.record("result.stale", About.attempt_of(held), data=data)
