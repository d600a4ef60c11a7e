"""Jobs. Every state change names the state that it expects. If it changes no row, another change came first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from peewee import JOIN, Case, fn

from deborgen_shared.states import State

from ..placement import Head
from . import hot
from .database import DatabaseConnection
from .models import Attempt, Job, Worker
from .rows import JobRow, builder, columns
from .statements import Locked
from .transactions import Tx

_job = builder(JobRow)


class ReadyJob(NamedTuple):
    """A job that can be claimed."""

    rank: int
    id: int
    step: int
    spec_id: int
    params: str
    last_attempt: int


class JobWithResult(NamedTuple):
    """A job as the results table shows it; `seconds` is how long its last attempt took."""

    id: int
    step: int
    params: str
    result: str | None
    state: str
    seconds: float | None
    worker: str | None
    round: int | None = None
    verified: bool | None = None


def lane_heads(tx: Tx | DatabaseConnection) -> list[Head]:
    """The first ready job of each lane. It takes one index seek per lane, even if the lanes are long."""
    return [Head(*row) for row in tx.rows(hot.LANES)]


def any_ready(tx: Tx) -> bool:
    return hot.any_ready.one(tx) is not None


def first_of_lane(tx: Tx, head: Head, most: int) -> list[ReadyJob]:
    """The first ready jobs of a lane, locked against other claims."""
    return [ReadyJob(*row) for row in hot.first_of_lane.rows(tx, head.class_id, head.submitter, head.avoid, most)]


def insert(tx: Tx, rows: Iterable[Sequence[Any]], *, large: bool) -> None:
    """Insert jobs. Each row holds the values of `hot.JOB_FIELDS`.

    `large` chooses the way that is faster for many rows.
    """
    if large:
        tx.connection.bulk_insert(Job, [field.column_name for field in hot.JOB_FIELDS], rows)
    else:
        hot.add_job.run_many(tx, rows)


def start(tx: Tx, jobs: Sequence[int], worker_id: int, now: float) -> int:
    """queued → running, under a new attempt."""
    return hot.start_job.run_many(tx, [(worker_id, now, job) for job in jobs])


def resume(tx: Tx, job: int, number: int, worker_id: int, started_at: float, *, count: bool) -> int:
    """queued → running, under an attempt that was given up. With `count`, the attempt counts after all."""
    change = {
        Job.state: State.RUNNING.value, Job.ready: 0, Job.avoid: 0, Job.avoid_clock: None, Job.wait_clock: None,
        Job.worker: worker_id, Job.started_at: started_at, Job.attempts: Job.attempts + int(count), Job.reason: "",
    }  # fmt: skip
    return tx.run(Job.update(change).where(_current(job, number, State.QUEUED)))


def _current(job: int, number: int, state: State) -> Any:
    return (Job.id == job) & (Job.state == state.value) & (Job.last_attempt == number)


def requeue(tx: Tx, job: int, number: int, *, refund: bool, **columns: Any) -> int:
    """running → queued: ready at once or, with a `wait_clock`, when the lease clock reaches it.

    With `refund`, the attempt does not count. The job avoids the worker `avoid`, if not 0, until `avoid_clock`.
    """
    change = {
        Job.state: State.QUEUED.value, Job.ready: int(columns["wait_clock"] is None),
        Job.wait_clock: columns["wait_clock"], Job.avoid: columns["avoid"],
        Job.avoid_clock: columns["avoid_clock"] if columns["avoid"] else None, Job.reason: columns["reason"],
        Job.attempts: Job.attempts - int(refund), Job.started_at: None, Job.progress: None, Job.message: None,
    }  # fmt: skip
    return tx.run(Job.update(change).where(_current(job, number, State.RUNNING)))


def finish(tx: Tx, job: int, number: int, state: State, **columns: Any) -> int:
    """running → a terminal state."""
    values = (columns[name] for name in ("reason", "exit_code", "result", "warnings", "now"))
    verified = None if columns["verified"] is None else int(columns["verified"])
    return hot.finish_job.run(tx, state.value, *values, verified, job, number)


def cancel_queued(tx: Tx, first: int, last: int, reason: str, now: float) -> list[tuple[int, int]]:
    """queued → canceled, for every queued job in the span of ids; return each canceled job with its step."""
    change = {
        Job.state: State.CANCELED.value, Job.ready: 0, Job.avoid: 0, Job.avoid_clock: None, Job.wait_clock: None,
        Job.reason: reason, Job.cancel_requested: 1, Job.finished_at: now,
    }  # fmt: skip
    query = Job.update(change).where(Job.id.between(first, last), Job.state == State.QUEUED.value)
    return sorted((job, step) for job, step in tx.rows(query.returning(Job.id, Job.step)))


def lock_unfinished(tx: Tx, first: int, last: int, *, has_loops: bool = False) -> None:
    """Lock the unfinished jobs in the span, so that no other process changes their states between two statements.

    With `has_loops`, a job may end while this waits for its lock, and be followed by a new one, so it looks again.
    """
    unfinished = Job.select(Job.id).where(Job.id.between(first, last), Job.finished_at.is_null()).order_by(Job.id)
    locked = set(tx.rows(Locked(unfinished)))
    while has_loops and not locked.issuperset(tx.rows(unfinished)):
        locked.update(tx.rows(Locked(unfinished)))


def request_cancel(tx: Tx, first: int, last: int, reason: str) -> tuple[list[int], list[int]]:
    """Request a cancel of the running jobs in the span; return the jobs for which it is the first request, and those
    for which it is not."""
    running = Job.id.between(first, last) & (Job.state == State.RUNNING.value)
    rows = tx.rows(Locked(Job.select(Job.id, Job.cancel_requested).where(running)))
    fresh = [job for job, asked in rows if not asked]
    change = {Job.cancel_requested: 1, Job.reason: reason}
    tx.run(Job.update(change).where(running, Job.cancel_requested == 0))
    return fresh, [job for job, asked in rows if asked]


def all_succeeded(tx: Tx, first: int, last: int) -> bool:
    """Whether all jobs of a step have succeeded, those of later rounds included. The step's span of ids is given."""
    of_step = Job.id.between(first, last) | Job.point.between(first, last)
    other = Job.select(Job.id).where(of_step, Job.state != State.SUCCEEDED.value)
    return not tx.rows(other.limit(1))


def unblock(tx: Tx, first: int, last: int) -> int:
    """Make the queued jobs of a step ready, now that the steps that it needs have succeeded."""
    held = (Job.state == State.QUEUED.value) & (Job.ready == 0) & Job.wait_clock.is_null()
    return tx.run(Job.update({Job.ready: 1}).where(Job.id.between(first, last), held))


def end_backoffs(tx: Tx, clock: float) -> int:
    """Make jobs ready when their backoff has ended, and let jobs return to a worker that they have avoided long enough.

    Returns the number of changes.
    """
    return hot.wake_jobs.run(tx, clock) + hot.stop_avoiding.run(tx, clock)


def set_progress(tx: Tx, rows: Sequence[tuple[float | None, str, int]]) -> None:
    """Store the progress and the message of each running job."""
    hot.set_progress.run_many(tx, rows)


def get(reader: Tx | DatabaseConnection, job: int) -> JobRow | None:
    rows = select(reader, span=(job, job))
    return rows[0] if rows else None


def select(
    reader: Tx | DatabaseConnection,
    *,
    span: tuple[int, int] | None = None,
    state: str | None = None,
    worker: str | None = None,
    cursor: int | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """Jobs that match every given filter, starting after the cursor. Jobs of a span come in the order of their ids, all
    others newest first."""
    query = Job.select(*columns(JobRow, Job, worker=Worker.name)).join(Worker, JOIN.LEFT_OUTER)
    query = query.order_by(Job.id if span is not None else Job.id.desc())
    if span is not None:
        query = query.where(Job.id.between(*span))
    if state is not None:
        query = query.where(Job.state == state)
    if worker is not None:
        query = query.where(Job.worker == Worker.select(Worker.id).where(Worker.name == worker))
    if cursor is not None:
        query = query.where(Job.id > cursor if span is not None else Job.id < cursor)
    if limit is not None:
        query = query.limit(limit)
    return [_job(row) for row in reader.rows(query)]


def results(
    reader: DatabaseConnection,
    first: int,
    last: int,
    limit: int,
    *,
    state: State | None = None,
    has_loops: bool = False,
) -> list[JobWithResult]:
    """The jobs of a span, for the results table; with a `state`, only the jobs in it. With `has_loops`, only the first
    job of each loop."""
    chosen = Job.id.between(first, last)
    if state is not None:
        chosen &= Job.state == state.value
    if has_loops:
        chosen &= Job.point.is_null() | (Job.point == Job.id)
    return [JobWithResult(*row) for row in reader.rows(with_results(chosen).limit(limit))]


def results_of(reader: DatabaseConnection, jobs: Sequence[int]) -> dict[int, JobWithResult]:
    """These jobs, for the results table, by their ids."""
    return {row[0]: JobWithResult(*row) for row in reader.rows(with_results(Job.id.in_(jobs)))}


def with_results(chosen: Any, *more: Any) -> Any:
    """A query for the chosen jobs, as the results table shows them, with more columns."""
    newest = (Attempt.job == Job.id) & (Attempt.number == Job.last_attempt)
    query = Job.select(Job.id, Job.step, Job.params, Job.result, Job.state, Attempt.seconds, Worker.name, *more)
    query = query.join(Attempt, JOIN.LEFT_OUTER, on=newest)
    return query.join(Worker, JOIN.LEFT_OUTER, on=(Worker.id == Job.worker)).where(chosen).order_by(Job.id)


class JobColumns(NamedTuple):
    """A part of a step: the number of its jobs, the id of the last of them, and the parameters and the results of all
    of them as JSON, with commas in between."""

    jobs: int
    last: int
    params: str
    results: str


def as_columns(reader: DatabaseConnection, first: int, last: int, most: int, longest: int) -> JobColumns | None:
    """The first jobs of a span as columns; None if there is none. A result with more characters than `longest` counts
    as none. One row of long texts is read several times as fast as many short rows."""
    short = Case(None, [(fn.LENGTH(Job.result) <= longest, Job.result)], None)
    part = Job.select(
        Job.id.alias("id"), Job.params.alias("params"), fn.COALESCE(short, "null").alias("result")
    )  # fmt: skip
    part = part.where(Job.id.between(first, last)).order_by(Job.id).limit(most).alias("part")
    columns = (reader.joined(part.c[name]) for name in ("params", "result"))
    query = Job.select(fn.COUNT(part.c.id), fn.MAX(part.c.id), *columns).from_(part)
    [row] = reader.rows(query)
    return JobColumns(*row) if row[0] else None


def running_per_submitter(tx: Tx) -> dict[int, int]:
    """The number of running jobs per submitter."""
    query = Job.select(Job.submitter, fn.COUNT(Job.id)).where(Job.state == State.RUNNING.value)
    return dict(tx.rows(query.group_by(Job.submitter)))


def ids_in_span(tx: Tx | DatabaseConnection, first: int, last: int) -> list[int]:
    """The ids of the jobs in a span."""
    return [job for (job,) in tx.rows(Job.select(Job.id).where(Job.id.between(first, last)).order_by(Job.id))]


def ended_in_span(tx: Tx, first: int, last: int) -> list[int]:
    """The ids of the jobs in a span that have ended."""
    query = Job.select(Job.id).where(Job.id.between(first, last), Job.finished_at.is_null(False))
    return [job for (job,) in tx.rows(query)]
