"""Rows of jobs. Every change of a state names the state it expects: zero rows touched means that somebody was first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import peewee

from deborgen_shared.states import State

from ..placement import Head
from .database import Connection, Row, insert_into
from .rows import JobRow, builder, columns
from .transactions import Tx

COLUMNS = columns(JobRow, worker="worker_id")
JOB: Any = peewee.Table("job", COLUMNS)
WORKER: Any = peewee.Table("worker", ("id", "name"))
JOBS = JOB.select(*(WORKER.name if column == "worker_id" else getattr(JOB, column) for column in COLUMNS)).join(
    WORKER, peewee.JOIN.LEFT_OUTER, on=(JOB.worker_id == WORKER.id)
)
_job = builder(JobRow)

#: A walk along the index, one seek a lane. The three ways to the next lane are spelled out because SQLite uses only the
#: first column of a comparison of rows, and would walk through all the jobs of a class.
LANES = """
WITH RECURSIVE lane (class_id, submitter_id, avoid, rank, id) AS (
    SELECT * FROM (
        SELECT class_id, submitter_id, avoid, rank, id FROM job WHERE ready = 1
        ORDER BY class_id, submitter_id, avoid, rank, id LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.class_id, job.submitter_id, job.avoid, job.rank, job.id FROM lane JOIN job ON job.id = COALESCE(
        (SELECT next.id FROM job AS next WHERE next.ready = 1 AND next.class_id = lane.class_id
            AND next.submitter_id = lane.submitter_id AND next.avoid > lane.avoid
            ORDER BY next.avoid, next.rank, next.id LIMIT 1),
        (SELECT next.id FROM job AS next WHERE next.ready = 1 AND next.class_id = lane.class_id
            AND next.submitter_id > lane.submitter_id
            ORDER BY next.submitter_id, next.avoid, next.rank, next.id LIMIT 1),
        (SELECT next.id FROM job AS next WHERE next.ready = 1 AND next.class_id > lane.class_id
            ORDER BY next.class_id, next.submitter_id, next.avoid, next.rank, next.id LIMIT 1)
    )
)
SELECT rank, id, class_id, submitter_id, avoid FROM lane
"""


#: Written once: these run thousands of times per second.
_QUEUED = State.QUEUED.value
INSERT_COLUMNS = ("id", "step", "spec_id", "class_id", "submitter_id", "rank", "params", "ready", "state")
INSERT = insert_into("job", INSERT_COLUMNS)
START = (
    f"UPDATE job SET state = '{State.RUNNING}', ready = 0, avoid = 0, avoid_clock = NULL, attempts = attempts + 1,"
    " last_attempt = last_attempt + 1, worker_id = ?, started_at = ?, progress = NULL, message = NULL, reason = ''"
    f" WHERE id = ? AND state = '{State.QUEUED}' AND ready = 1"
)
RESUME = (
    f"UPDATE job SET state = '{State.RUNNING}', ready = 0, avoid = 0, avoid_clock = NULL, wait_clock = NULL,"
    " worker_id = ?, started_at = ?, attempts = attempts + ?, reason = ''"
    f" WHERE id = ? AND state = '{State.QUEUED}' AND last_attempt = ?"
)
REQUEUE = (
    f"UPDATE job SET state = '{State.QUEUED}', ready = ?, wait_clock = ?, avoid = ?, avoid_clock = ?, reason = ?,"
    " attempts = attempts - ?, started_at = NULL, progress = NULL, message = NULL"
    f" WHERE id = ? AND state = '{State.RUNNING}' AND last_attempt = ?"
)
FINISH = (
    "UPDATE job SET state = ?, reason = ?, exit_code = ?, result = ?, warnings = ?, finished_at = ?"
    f" WHERE id = ? AND state = '{State.RUNNING}' AND last_attempt = ?"
)
CANCEL_QUEUED = (
    f"UPDATE job SET state = '{State.CANCELED}', ready = 0, avoid = 0, avoid_clock = NULL, wait_clock = NULL,"
    " reason = ?, cancel_requested = 1, finished_at = ?"
    f" WHERE id BETWEEN ? AND ? AND state = '{State.QUEUED}' RETURNING id, step"
)
RUNNING_IN = f"SELECT id, cancel_requested FROM job WHERE id BETWEEN ? AND ? AND state = '{State.RUNNING}'"
UNBLOCK = (
    "UPDATE job SET ready = 1"
    f" WHERE id BETWEEN ? AND ? AND state = '{State.QUEUED}' AND ready = 0 AND wait_clock IS NULL"
)
SET_PROGRESS = f"UPDATE job SET progress = ?, message = ? WHERE id = ? AND state = '{State.RUNNING}'"
RUNNING_OF = f"SELECT submitter_id, count(*) FROM job WHERE state = '{State.RUNNING}' GROUP BY submitter_id"


def heads(tx: Tx | Connection) -> list[Head]:
    """The first ready job of each lane, by one step along the index a lane, however long the lanes are."""
    return [Head(*row) for row in tx.rows(LANES)]


def any_ready(tx: Tx) -> bool:
    return bool(tx.rows("SELECT 1 FROM job WHERE ready = 1 LIMIT 1"))


def first_of_lane(tx: Tx, head: Head, most: int) -> list[tuple[int, int, int, int, str, int]]:
    """The first ready jobs of a lane, kept from other claims: rank, id, step, spec, params, last attempt."""
    return tx.rows(
        "SELECT rank, id, step, spec_id, params, last_attempt FROM job"
        " WHERE ready = 1 AND class_id = ? AND submitter_id = ? AND avoid = ? ORDER BY rank, id LIMIT ?"
        + tx.skip_locked,
        (head.class_id, head.submitter, head.avoid, most),
    )


def insert(tx: Tx, rows: Iterable[Sequence[Any]], *, large: bool) -> None:
    """New jobs: id, step, spec, class, submitter, rank, params, ready. They are queued."""
    full = ((*row, _QUEUED) for row in rows)
    if large:
        tx.fill("job", INSERT_COLUMNS, full)
    else:
        tx.many(INSERT, full)


def start(tx: Tx, jobs: Sequence[int], worker_id: int, now: float) -> int:
    """queued → running, under a new attempt."""
    return tx.many(START, [(worker_id, now, job) for job in jobs])


def resume(tx: Tx, job: int, number: int, worker_id: int, started_at: float, *, count: bool) -> int:
    """queued → running, under the attempt that had been given up; with `count` that attempt counts again."""
    return tx.run(RESUME, (worker_id, started_at, int(count), job, number))


def requeue(
    tx: Tx,
    job: int,
    number: int,
    *,
    reason: str,
    refund: bool,
    wait_clock: float | None,
    avoid: int,
    avoid_clock: float,
) -> int:
    """running → queued: ready at once, or when the lease clock has come so far."""
    ready, avoid_until = int(wait_clock is None), avoid_clock if avoid else None
    return tx.run(REQUEUE, (ready, wait_clock, avoid, avoid_until, reason, int(refund), job, number))


def finish(
    tx: Tx,
    job: int,
    number: int,
    state: State,
    *,
    reason: str,
    exit_code: int | None,
    result: str | None,
    warnings: str | None,
    now: float,
) -> int:
    """running → a terminal state."""
    return tx.run(FINISH, (state.value, reason, exit_code, result, warnings, now, job, number))


def cancel_queued(tx: Tx, first: int, last: int, reason: str, now: float) -> list[tuple[int, int]]:
    """queued → canceled, for every queued job in that span of keys; those it was, each with its step."""
    rows = tx.rows(CANCEL_QUEUED, (reason, now, first, last))
    return sorted((row[0], row[1]) for row in rows)


def hold_unfinished(tx: Tx, first: int, last: int) -> None:
    """Keep the jobs in the span that have not ended from other processes, so that none slips from one state into
    another between two statements. SQLite has one writer, and nothing to hold."""
    if tx.for_update:
        unfinished = "SELECT id FROM job WHERE id BETWEEN ? AND ? AND finished_at IS NULL ORDER BY id"
        tx.rows(unfinished + tx.for_update, (first, last))


def request_cancel(tx: Tx, first: int, last: int, reason: str) -> tuple[list[int], list[int]]:
    """Mark the running jobs in the span for a cancel; those marked now, and those that were already."""
    rows = tx.rows(RUNNING_IN + tx.for_update, (first, last))
    fresh = [row[0] for row in rows if not row[1]]
    tx.many("UPDATE job SET cancel_requested = 1, reason = ? WHERE id = ?", [(reason, job) for job in fresh])
    return fresh, [row[0] for row in rows if row[1]]


def unblock(tx: Tx, first: int, last: int) -> int:
    """Let the queued jobs of a step be claimed, now that the steps it needs are through."""
    return tx.run(UNBLOCK, (first, last))


def wake_up(tx: Tx, clock: float) -> int:
    """Let the jobs be claimed whose backoff is over; how many they were."""
    count = tx.run("UPDATE job SET ready = 1, wait_clock = NULL WHERE wait_clock <= ?", (clock,))
    return count + tx.run("UPDATE job SET avoid = 0, avoid_clock = NULL WHERE avoid_clock <= ?", (clock,))


def set_progress(tx: Tx, rows: Sequence[tuple[float | None, str, int]]) -> None:
    tx.many(SET_PROGRESS, rows)


def get(reader: Tx | Connection, job: int) -> JobRow | None:
    rows = select(reader, span=(job, job))
    return rows[0] if rows else None


def select(
    reader: Tx | Connection,
    *,
    span: tuple[int, int] | None = None,
    state: str | None = None,
    worker: str | None = None,
    cursor: int | None = None,
    limit: int | None = None,
    newest_first: bool = False,
) -> list[JobRow]:
    """Jobs that fit all that is given, in the order of their keys, from behind the cursor on."""
    query = JOBS.order_by(JOB.id.desc() if newest_first else JOB.id)
    if span is not None:
        query = query.where(JOB.id.between(*span))
    if state is not None:
        query = query.where(JOB.state == state)
    if worker is not None:
        query = query.where(WORKER.name == worker)
    if cursor is not None:
        query = query.where(JOB.id < cursor if newest_first else JOB.id > cursor)
    if limit is not None:
        query = query.limit(limit)
    connection = reader.connection if isinstance(reader, Tx) else reader
    return [_job(row) for row in connection.query(query)]


def results(reader: Connection, first: int, last: int, limit: int) -> list[Row]:
    """For the jobs of a span: id, step, params, result, state, seconds of the last attempt, worker."""
    return reader.rows(
        "SELECT job.id, job.step, job.params, job.result, job.state, attempt.seconds, worker.name FROM job"
        " LEFT JOIN attempt ON attempt.job_id = job.id AND attempt.number = job.last_attempt"
        " LEFT JOIN worker ON worker.id = job.worker_id"
        " WHERE job.id BETWEEN ? AND ? ORDER BY job.id LIMIT ?",
        (first, last, limit),
    )


def running_of(tx: Tx) -> dict[int, int]:
    """How many jobs each submitter has running."""
    return dict(tx.rows(RUNNING_OF))


def in_span(tx: Tx, first: int, last: int) -> list[int]:
    """The jobs there are in a span of keys."""
    return [row[0] for row in tx.rows("SELECT id FROM job WHERE id BETWEEN ? AND ?", (first, last))]


def terminal_in(tx: Tx, first: int, last: int) -> list[int]:
    """The jobs in a span of keys that have ended."""
    rows = tx.rows("SELECT id FROM job WHERE id BETWEEN ? AND ? AND finished_at IS NOT NULL", (first, last))
    return [row[0] for row in rows]
