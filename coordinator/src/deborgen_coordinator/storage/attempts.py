"""Rows of attempts and their leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deborgen_shared.states import Outcome, State

from .database import Connection, Row
from .rows import Held
from .transactions import Tx

HELD = """
SELECT attempt.job_id, attempt.number, attempt.worker_id, worker.name, attempt.session, attempt.confirmed,
    attempt.outcome, attempt.digest, attempt.granted_clock, attempt.started_at, attempt.began_at, attempt.log_size,
    attempt.stale,
    job.state, job.attempts, job.last_attempt, job.step, job.spec_id, job.submitter_id, job.cancel_requested, job.reason
FROM attempt JOIN job ON job.id = attempt.job_id JOIN worker ON worker.id = attempt.worker_id
"""


RESUME = (
    "UPDATE attempt SET outcome = NULL, finished_at = NULL, reason = '', lease_clock = ?, session = ?, confirmed = 1"
    f" WHERE job_id = ? AND number = ? AND outcome IN ('{Outcome.LOST}', '{Outcome.RELEASED}')"
)


def _held(row: Row) -> Held:
    values = list(row)
    values[5], values[12], values[19] = bool(row[5]), bool(row[12]), bool(row[19])
    values[6] = Outcome(row[6]) if row[6] else None
    values[13] = State(row[13])
    return Held(*values)


def _lock(tx: Tx) -> str:
    return " FOR UPDATE OF attempt, job" if tx.for_update else ""


def get(tx: Tx, job: int, number: int) -> Held | None:
    row = tx.one(HELD + " WHERE attempt.job_id = ? AND attempt.number = ?" + _lock(tx), (job, number))
    return _held(row) if row else None


def live_of(tx: Tx, worker_id: int) -> list[Held]:
    """What a worker holds, in the order of the jobs."""
    rows = tx.rows(
        HELD + " WHERE attempt.worker_id = ? AND attempt.outcome IS NULL ORDER BY attempt.job_id" + _lock(tx),
        (worker_id,),
    )
    return [_held(row) for row in rows]


def expired(tx: Tx, clock: float, most: int) -> list[Held]:
    """Live attempts whose lease has run out."""
    rows = tx.rows(
        HELD
        + " WHERE attempt.outcome IS NULL AND attempt.lease_clock < ? ORDER BY attempt.lease_clock LIMIT ?"
        + _lock(tx),
        (clock, most),
    )
    return [_held(row) for row in rows]


def overdue(tx: Tx, clock: float, most: int) -> list[Held]:
    """Live attempts that ran far past their time limit."""
    rows = tx.rows(
        HELD + " WHERE attempt.outcome IS NULL AND attempt.deadline_clock < ? LIMIT ?" + _lock(tx), (clock, most)
    )
    return [_held(row) for row in rows]


def grant(tx: Tx, rows: Sequence[Sequence[Any]]) -> None:
    """New attempts: job, number, worker, session, claim, granted clock, deadline clock, lease clock, claimed at."""
    tx.many(
        "INSERT INTO attempt (job_id, number, worker_id, session, claim_id, granted_clock, deadline_clock, lease_clock,"
        " started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def renew(
    tx: Tx, held: Sequence[tuple[int, int, float | None, float]], worker_id: int, session: str, lease_clock: float
) -> None:
    """Extend the leases of attempts that a heartbeat has named: job, number, when its program began, deadline clock."""
    tx.many(
        "UPDATE attempt SET lease_clock = ?, confirmed = 1, began_at = ?, deadline_clock = ?"
        " WHERE job_id = ? AND number = ? AND outcome IS NULL AND worker_id = ? AND session = ?",
        [(lease_clock, began_at, ends, job, number, worker_id, session) for job, number, began_at, ends in held],
    )


def renew_claim(tx: Tx, claim: int, lease_clock: float) -> None:
    """Extend the leases of what a claim was given, because the claim was repeated. That does not name the attempts."""
    tx.run("UPDATE attempt SET lease_clock = ? WHERE claim_id = ? AND outcome IS NULL", (lease_clock, claim))


def regrant(tx: Tx, lease_clock: float) -> int:
    """Give every live lease at least so long; how many there are."""
    return tx.run(
        "UPDATE attempt SET lease_clock = ? WHERE outcome IS NULL AND lease_clock < ?", (lease_clock, lease_clock)
    )


def adopt(tx: Tx, job: int, number: int, session: str, lease_clock: float) -> None:
    """Hand a live attempt over to the worker's new session."""
    tx.run(
        "UPDATE attempt SET session = ?, lease_clock = ?, confirmed = 1"
        " WHERE job_id = ? AND number = ? AND outcome IS NULL",
        (session, lease_clock, job, number),
    )


def resume(tx: Tx, job: int, number: int, session: str, lease_clock: float) -> int:
    """Take up again an attempt that had been given up."""
    return tx.run(RESUME, (lease_clock, session, job, number))


def end(
    tx: Tx,
    job: int,
    number: int,
    outcome: Outcome,
    *,
    reason: str,
    now: float,
    exit_code: int | None = None,
    seconds: float | None = None,
    cpu_seconds: float | None = None,
    peak_memory: int | None = None,
    image: str = "",
    digest: str | None = None,
    log_told: int | None = None,
    named: bool = False,
    began_at: float | None = None,
) -> int:
    return tx.run(
        "UPDATE attempt SET outcome = ?, reason = ?, finished_at = ?, lease_clock = NULL, exit_code = ?, seconds = ?,"
        " cpu_seconds = ?, peak_memory = ?, image = ?, digest = ?, log_told = ?, began_at = ?,"
        " confirmed = CASE WHEN ? THEN 1 ELSE confirmed END"
        " WHERE job_id = ? AND number = ? AND outcome IS NULL",
        (
            outcome.value,
            reason,
            now,
            exit_code,
            seconds,
            cpu_seconds,
            peak_memory,
            image,
            digest,
            log_told,
            began_at,
            named,
            job,
            number,
        ),
    )


def mark_stale(tx: Tx, job: int, number: int) -> None:
    tx.run("UPDATE attempt SET stale = 1 WHERE job_id = ? AND number = ?", (job, number))


def latest(tx: Tx, job: int, most: int) -> list[tuple[int, str | None, int]]:
    """The last attempts of a job, newest first: worker, outcome, whether anything ever named it."""
    sql = "SELECT worker_id, outcome, confirmed FROM attempt WHERE job_id = ? ORDER BY number DESC LIMIT ?"
    return tx.rows(sql, (job, most))


def claim_of(tx: Tx, worker_id: int, request_id: str) -> int | None:
    row = tx.one("SELECT id FROM claim WHERE worker_id = ? AND request_id = ?", (worker_id, request_id))
    return int(row[0]) if row else None


def new_claim(tx: Tx, worker_id: int, request_id: str, now: float) -> int:
    row = tx.one(
        "INSERT INTO claim (worker_id, request_id, created_at) VALUES (?, ?, ?) RETURNING id",
        (worker_id, request_id, now),
    )
    assert row is not None
    return int(row[0])


def of_claim(tx: Tx, claim: int) -> list[tuple[int, int, int, int, str]]:
    """The live attempts that a claim was given: job, number, step, spec, params."""
    return tx.rows(
        "SELECT attempt.job_id, attempt.number, job.step, job.spec_id, job.params FROM attempt"
        " JOIN job ON job.id = attempt.job_id WHERE attempt.claim_id = ? AND attempt.outcome IS NULL"
        " ORDER BY attempt.job_id",
        (claim,),
    )


def exists(reader: Connection, job: int, number: int) -> bool:
    return reader.one("SELECT 1 FROM attempt WHERE job_id = ? AND number = ?", (job, number)) is not None


def history(reader: Connection, job: int) -> list[Row]:
    return reader.rows(
        "SELECT number, worker.name, outcome, attempt.reason, exit_code, started_at, began_at, finished_at, seconds,"
        " log_size, cpu_seconds, peak_memory, image, lease_clock"
        " FROM attempt JOIN worker ON worker.id = attempt.worker_id"
        " WHERE job_id = ? ORDER BY number",
        (job,),
    )


def held_names(reader: Connection, worker_id: int) -> list[tuple[int, int]]:
    return reader.rows(
        "SELECT job_id, number FROM attempt WHERE worker_id = ? AND outcome IS NULL ORDER BY job_id", (worker_id,)
    )


def usage(tx: Tx, clock: float) -> tuple[dict[int, float], list[tuple[int, int, float]]]:
    """What each submitter has used in ended attempts, in seconds times cpus, and the seconds of those that still run,
    by submitter and class."""
    used: dict[int, float] = dict(tx.rows("SELECT id, used FROM submitter"))
    running = tx.rows(
        "SELECT job.submitter_id, job.class_id, sum(? - attempt.granted_clock) FROM attempt"
        " JOIN job ON job.id = attempt.job_id WHERE attempt.outcome IS NULL"
        " GROUP BY job.submitter_id, job.class_id",
        (clock,),
    )
    return used, running


def charge(tx: Tx, submitter_id: int, amount: float) -> None:
    tx.run("UPDATE submitter SET used = used + ? WHERE id = ?", (amount, submitter_id))
