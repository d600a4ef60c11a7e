"""Attempts and their leases, and the claims that they were granted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from peewee import fn

from deborgen_shared.states import Outcome

from . import hot
from .database import Connection, Row
from .models import Attempt, Job, Submitter, Worker
from .rows import Held, builder
from .transactions import Tx

_held = builder(Held)
LIVE = hot.LIVE


class Claimed(NamedTuple):
    """A live attempt that a claim was given."""

    job: int
    number: int
    step: int
    spec_id: int
    params: str


def _this(job: int, number: int) -> Any:
    return (Attempt.job == job) & (Attempt.number == number)


def get(tx: Tx, job: int, number: int) -> Held | None:
    row = hot.attempt_numbered.one(tx, job, number)
    return _held(row) if row else None


def live_of(tx: Tx, worker_id: int) -> list[Held]:
    """What a worker holds, in the order of the jobs."""
    return [_held(row) for row in hot.attempts_held_by.rows(tx, worker_id)]


def expired(tx: Tx, clock: float, most: int) -> list[Held]:
    """Live attempts whose lease has run out."""
    return [_held(row) for row in hot.expired_attempts.rows(tx, clock, most)]


def overdue(tx: Tx, clock: float, most: int) -> list[Held]:
    """Live attempts that ran far past their time limit."""
    return [_held(row) for row in hot.overdue_attempts.rows(tx, clock, most)]


def grant(tx: Tx, rows: Sequence[Sequence[Any]]) -> None:
    """New attempts: job, number, worker, session, claim, granted clock, deadline clock, lease clock, claimed at."""
    hot.add_attempt.many(tx, rows)


def renew(
    tx: Tx, held: Sequence[tuple[int, int, float | None, float]], worker_id: int, session: str, lease_clock: float
) -> None:
    """Extend the leases of attempts that a heartbeat has named: job, number, when its program began, deadline clock."""
    hot.renew_lease.many(
        tx, [(lease_clock, began_at, ends, job, number, worker_id, session) for job, number, began_at, ends in held]
    )


def renew_claim(tx: Tx, claim: int, lease_clock: float) -> None:
    """Extend the leases of what a claim was given, because the claim was repeated. That does not name the attempts."""
    tx.run(Attempt.update({Attempt.lease_clock: lease_clock}).where(Attempt.claim == claim, LIVE))


def regrant(tx: Tx, lease_clock: float) -> int:
    """Give every live lease at least this much time; how many leases that are."""
    short = LIVE & (Attempt.lease_clock < lease_clock)
    return tx.run(Attempt.update({Attempt.lease_clock: lease_clock}).where(short))


def adopt(tx: Tx, job: int, number: int, session: str, lease_clock: float) -> None:
    """Hand a live attempt over to the worker's new session."""
    change = {Attempt.session: session, Attempt.lease_clock: lease_clock, Attempt.confirmed: 1}
    tx.run(Attempt.update(change).where(_this(job, number), LIVE))


def resume(tx: Tx, job: int, number: int, session: str, lease_clock: float) -> int:
    """Take up again an attempt that had been given up."""
    change = {
        Attempt.outcome: None, Attempt.finished_at: None, Attempt.reason: "", Attempt.lease_clock: lease_clock,
        Attempt.session: session, Attempt.confirmed: 1,
    }  # fmt: skip
    given_up = Attempt.outcome.in_([Outcome.LOST.value, Outcome.RELEASED.value])
    return tx.run(Attempt.update(change).where(_this(job, number), given_up))


#: The columns that the end of an attempt sets, where its caller says nothing of them.
ENDED: dict[str, Any] = {
    "reason": "", "now": 0.0, "exit_code": None, "seconds": None, "cpu_seconds": None, "peak_memory": None, "image": "",
    "digest": None, "log_told": None, "began_at": None, "named": False,
}  # fmt: skip


def end(tx: Tx, job: int, number: int, outcome: Outcome, **columns: Any) -> int:
    """End a live attempt; 0 if it is not live. `columns` are those of `ENDED`."""
    *values, named = (ENDED | columns).values()
    return hot.end_attempt.run(tx, outcome.value, *values, int(named), job, number)


def mark_stale(tx: Tx, job: int, number: int) -> None:
    tx.run(Attempt.update({Attempt.stale: 1}).where(_this(job, number)))


def latest(tx: Tx, job: int, most: int) -> list[tuple[int, str | None, int]]:
    """The last attempts of a job, newest first: worker, outcome, whether anything ever named it."""
    query = Attempt.select(Attempt.worker, Attempt.outcome, Attempt.confirmed).where(Attempt.job == job)
    return tx.rows(query.order_by(Attempt.number.desc()).limit(most))


def claim_of(tx: Tx, worker_id: int, request_id: str) -> int | None:
    row = hot.claim_of.one(tx, worker_id, request_id)
    return int(row[0]) if row else None


def new_claim(tx: Tx, worker_id: int, request_id: str, now: float) -> int:
    return int(hot.add_claim.value(tx, worker_id, request_id, now))


def of_claim(tx: Tx, claim: int) -> list[Claimed]:
    """The live attempts that a claim was given."""
    query = Attempt.select(Attempt.job, Attempt.number, Job.step, Job.spec, Job.params).join(Job)
    return [Claimed(*row) for row in tx.rows(query.where(Attempt.claim == claim, LIVE).order_by(Attempt.job))]


def exists(reader: Connection, job: int, number: int) -> bool:
    return reader.one(Attempt.select(Attempt.number).where(_this(job, number))) is not None


def history(reader: Connection, job: int) -> list[Row]:
    query = Attempt.select(
        Attempt.number, Worker.name, Attempt.outcome, Attempt.reason, Attempt.exit_code, Attempt.started_at,
        Attempt.began_at, Attempt.finished_at, Attempt.seconds, Attempt.log_size, Attempt.cpu_seconds,
        Attempt.peak_memory, Attempt.image, Attempt.lease_clock,
    )  # fmt: skip
    return reader.rows(query.join(Worker).where(Attempt.job == job).order_by(Attempt.number))


def held_names(reader: Connection, worker_id: int) -> list[tuple[int, int]]:
    query = Attempt.select(Attempt.job, Attempt.number).where(Attempt.worker == worker_id, LIVE)
    return reader.rows(query.order_by(Attempt.job))


def usage(tx: Tx, clock: float) -> tuple[dict[int, float], list[tuple[int, int, float]]]:
    """What each submitter has used in ended attempts, in seconds times cpus, and the seconds of those that still run,
    by submitter and class."""
    used: dict[int, float] = dict(tx.rows(Submitter.select(Submitter.id, Submitter.used)))
    query = Attempt.select(Job.submitter, Job.job_class, fn.SUM(clock - Attempt.granted_clock)).join(Job)
    return used, tx.rows(query.where(LIVE).group_by(Job.submitter, Job.job_class))


def charge(tx: Tx, submitter_id: int, amount: float) -> None:
    hot.charge.run(tx, amount, submitter_id)
