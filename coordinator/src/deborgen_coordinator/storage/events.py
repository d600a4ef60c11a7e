"""The history: transactions append to it, readers page through it with a cursor."""

from __future__ import annotations

from typing import Any

from peewee import SQL, Cast, Value, fn

from deborgen_shared.states import State

from .. import ids
from .database import DatabaseConnection, Row
from .models import Attempt, Event, Job
from .transactions import Tx


def select(
    reader: DatabaseConnection,
    *,
    span: tuple[int, int | None],
    run: int | None,
    job: int | None,
    worker: str | None,
    limit: int,
) -> list[Row]:
    """Events between the two numbers of a span: oldest first or, if it has an upper end, newest first.

    A row is the number, then the values in column order."""
    after, before = span
    query = Event.select().where(Event.seq > after).limit(limit)
    query = query.order_by(Event.seq) if before is None else query.where(Event.seq < before).order_by(Event.seq.desc())
    if run is not None:
        query = query.where(Event.job.between(ids.key(run, 0), ids.span(run)[1]))
    if job is not None:
        query = query.where(Event.job == job)
    if worker is not None:
        query = query.where(Event.worker == worker)
    return reader.rows(query)


def newest(reader: DatabaseConnection) -> int:
    return reader.value(Event.select(fn.MAX(Event.seq))) or 0


def cancels(tx: Tx, first: int, last: int) -> list[tuple[int, str, str | None]]:
    """The events that canceled queued jobs in a span of ids: job, actor, data."""
    canceled = (Event.type == f"job.{State.CANCELED}") & Event.attempt.is_null()
    return tx.rows(Event.select(Event.job, Event.actor, Event.data).where(Event.job.between(first, last), canceled))


def record_queued(tx: Tx, first: int, last: int, actor: str, now: float) -> None:
    """Record that each job in a span of ids was queued, with one statement."""
    values = (
        Cast(Value(now), "DOUBLE PRECISION"), SQL(f"'job.{State.QUEUED}'"), Job.id, Cast(Value(actor), "TEXT"),
        SQL(f"'{State.QUEUED}'"),
    )  # fmt: skip
    queued = Job.select(*values).where(Job.id.between(first, last)).order_by(Job.id)
    tx.record_set(Event.insert_from(queued, [Event.time, Event.type, Event.job, Event.actor, Event.new_state]))


def _attempt(job: int, number: int) -> Any:
    return (Attempt.job == job) & (Attempt.number == number)


def count_program_events(tx: Tx, job: int, number: int) -> int:
    """The number of program events that an attempt has sent."""
    return int(tx.value(Attempt.select(Attempt.events).where(_attempt(job, number))))


def set_program_events(tx: Tx, job: int, number: int, count: int) -> None:
    tx.run(Attempt.update({Attempt.events: count}).where(_attempt(job, number)))
