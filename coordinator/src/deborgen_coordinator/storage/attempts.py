"""Attempts with their leases, and the claims that granted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from peewee import fn

from deborgen_shared.states import Outcome

from . import hot
from .database import DatabaseConnection, Row
from .models import Attempt, Job, Submitter, Worker
from .rows import HeldAttempt, builder
from .transactions import Tx

_held = builder(HeldAttempt)
LIVE = hot.LIVE


class ClaimedAttempt(NamedTuple):
    """A live attempt that was granted to a claim."""

    job: int
    number: int
    step: int
    spec_id: int
    params: str


def _this(job: int, number: int) -> Any:
    return (Attempt.job == job) & (Attempt.number == number)


def program_starts(reader: DatabaseConnection, jobs: Sequence[int]) -> dict[int, float]:
    """When the program of each job's live attempt began. Jobs whose program is not known to have begun are left out."""
    if not jobs:
        return {}
    query = Attempt.select(Attempt.job, Attempt.began_at).where(Attempt.job.in_(jobs), Attempt.outcome.is_null())
    return {job: began_at for job, began_at in reader.rows(query) if began_at is not None}


def get(tx: Tx, job: int, number: int) -> HeldAttempt | None:
    row = hot.attempt_numbered.one(tx, job, number)
    return _held(row) if row else None


def held_by(tx: Tx, worker_id: int) -> list[HeldAttempt]:
    """The live attempts of a worker, in the order of their jobs."""
    return [_held(row) for row in hot.live_attempts_of.rows(tx, worker_id)]


def with_expired_lease(tx: Tx, clock: float, most: int) -> list[HeldAttempt]:
    """Live attempts whose lease has expired."""
    return [_held(row) for row in hot.expired_attempts.rows(tx, clock, most)]


def past_time_limit(tx: Tx, clock: float, most: int) -> list[HeldAttempt]:
    """Live attempts that are far past their time limit."""
    return [_held(row) for row in hot.overdue_attempts.rows(tx, clock, most)]


def grant(tx: Tx, rows: Sequence[Sequence[Any]]) -> None:
    """Insert attempts. Each row holds the values of `hot.add_attempt`."""
    hot.add_attempt.run_many(tx, rows)


def renew(
    tx: Tx, held: Sequence[tuple[int, int, float | None, float]], worker_id: int, session: str, lease_clock: float
) -> None:
    """Extend the leases of the attempts in a heartbeat. Each has its job, number, program start and deadline clock."""
    hot.renew_lease.run_many(
        tx, [(lease_clock, began_at, ends, job, number, worker_id, session) for job, number, began_at, ends in held]
    )


def renew_claim(tx: Tx, worker_id: int, claim: int, lease_clock: float) -> None:
    """Extend the leases of a claim's attempts because the claim was repeated. The attempts do not count as named."""
    granted = (Attempt.worker == worker_id) & (Attempt.claim == claim) & LIVE
    tx.run(Attempt.update({Attempt.lease_clock: lease_clock}).where(granted))


def extend_all(tx: Tx, lease_clock: float) -> int:
    """Extend every live lease to at least this moment; return how many leases were extended."""
    short = LIVE & (Attempt.lease_clock < lease_clock)
    return tx.run(Attempt.update({Attempt.lease_clock: lease_clock}).where(short))


def adopt(tx: Tx, job: int, number: int, session: str, lease_clock: float) -> None:
    """Assign a live attempt to the worker's new session."""
    change = {Attempt.session: session, Attempt.lease_clock: lease_clock, Attempt.named: 1}
    tx.run(Attempt.update(change).where(_this(job, number), LIVE))


def ending(tx: Tx, job: int, number: int) -> tuple[Outcome, float, float] | None:
    """How and when an attempt ended, and how many seconds it had run; None while it is live."""
    row = tx.one(Attempt.select(Attempt.outcome, Attempt.finished_at, Attempt.seconds).where(_this(job, number)))
    return None if row is None or row[0] is None else (Outcome(row[0]), row[1], row[2] or 0.0)


def resume(tx: Tx, job: int, number: int, session: str, lease_clock: float) -> int:
    """Make an attempt live again after it was given up."""
    change = {
        Attempt.outcome: None, Attempt.finished_at: None, Attempt.reason: "", Attempt.lease_clock: lease_clock,
        Attempt.session: session, Attempt.named: 1,
    }  # fmt: skip
    given_up = Attempt.outcome.in_([Outcome.LOST.value, Outcome.RELEASED.value])
    return tx.run(Attempt.update(change).where(_this(job, number), given_up))


#: The values that the end of an attempt stores, in the order of `hot.end_attempt`, with their defaults.
END_DEFAULTS: dict[str, Any] = {
    "reason": "", "now": 0.0, "exit_code": None, "seconds": None, "cpu_seconds": None, "peak_memory": None, "image": "",
    "digest": None, "announced_size": None, "began_at": None, "named": False,
}  # fmt: skip


def end(tx: Tx, job: int, number: int, outcome: Outcome, **columns: Any) -> int:
    """End a live attempt; 0 if it is not live. `columns` are keys of `END_DEFAULTS`."""
    *values, named = (END_DEFAULTS | columns).values()
    return hot.end_attempt.run(tx, outcome.value, *values, int(named), job, number)


def mark_stale(tx: Tx, job: int, number: int) -> None:
    tx.run(Attempt.update({Attempt.stale: 1}).where(_this(job, number)))


def recent_outcomes(tx: Tx | DatabaseConnection, job: int, most: int) -> list[tuple[int, str | None, int]]:
    """The last attempts of a job, newest first: worker, outcome, and whether a heartbeat or result named them."""
    query = Attempt.select(Attempt.worker, Attempt.outcome, Attempt.named).where(Attempt.job == job)
    return tx.rows(query.order_by(Attempt.number.desc()).limit(most))


def claim_of(tx: Tx, worker_id: int, request_id: str) -> int | None:
    """The id of the worker's claim with this request id; None if it is new."""
    row = hot.claim_of.one(tx, worker_id, request_id)
    return int(row[0]) if row else None


def new_claim(tx: Tx, worker_id: int, request_id: str, now: float) -> int:
    return int(hot.add_claim.value(tx, worker_id, request_id, now))


def live_of_claim(tx: Tx, worker_id: int, claim: int) -> list[ClaimedAttempt]:
    """The live attempts that were granted to a claim."""
    query = Attempt.select(Attempt.job, Attempt.number, Job.step, Job.spec, Job.params).join(Job)
    query = query.where(Attempt.worker == worker_id, Attempt.claim == claim, LIVE).order_by(Attempt.job)
    return [ClaimedAttempt(*row) for row in tx.rows(query)]


def exists(reader: DatabaseConnection, job: int, number: int) -> bool:
    return reader.one(Attempt.select(Attempt.number).where(_this(job, number))) is not None


def history(reader: DatabaseConnection, job: int) -> list[Row]:
    query = Attempt.select(
        Attempt.number, Worker.name, Attempt.outcome, Attempt.reason, Attempt.exit_code, Attempt.claimed_at,
        Attempt.began_at, Attempt.finished_at, Attempt.seconds, Attempt.log_size, Attempt.cpu_seconds,
        Attempt.peak_memory, Attempt.image, Attempt.lease_clock, Attempt.from_attempt, Attempt.from_checkpoint,
    )  # fmt: skip
    return reader.rows(query.join(Worker).where(Attempt.job == job).order_by(Attempt.number))


def names_held_by(reader: Tx | DatabaseConnection, worker_id: int) -> list[tuple[int, int]]:
    """The job and the number of each live attempt of a worker."""
    query = Attempt.select(Attempt.job, Attempt.number).where(Attempt.worker == worker_id, LIVE)
    return reader.rows(query.order_by(Attempt.job))


def usage(tx: Tx, clock: float) -> tuple[dict[int, float], list[tuple[int, int, float]]]:
    """Each submitter's usage by ended attempts, in seconds times cpus, and the seconds that live attempts have run so
    far, per submitter and class."""
    used: dict[int, float] = dict(tx.rows(Submitter.select(Submitter.id, Submitter.used)))
    query = Attempt.select(Job.submitter, Job.job_class, fn.SUM(clock - Attempt.granted_clock)).join(Job)
    return used, tx.rows(query.where(LIVE).group_by(Job.submitter, Job.job_class))


def charge(tx: Tx, submitter_id: int, amount: float) -> None:
    hot.charge.run(tx, amount, submitter_id)
