"""The history: appended to in transactions, read by cursor."""

from __future__ import annotations

from typing import Any

import peewee

from deborgen_shared.states import State

from .. import ids
from .database import Connection, Row
from .transactions import EVENT_COLUMNS, Tx

EVENT: Any = peewee.Table("event", ("seq", *EVENT_COLUMNS))

RECORD_QUEUED = (
    "INSERT INTO event (time, type, job_id, actor, new_state)"
    f" SELECT CAST(? AS DOUBLE PRECISION), 'job.{State.QUEUED}', id, CAST(? AS TEXT), '{State.QUEUED}' FROM job"
    " WHERE id BETWEEN ? AND ? ORDER BY id"
)
CANCELS = (
    "SELECT job_id, actor, data FROM event"
    f" WHERE job_id BETWEEN ? AND ? AND type = 'job.{State.CANCELED}' AND attempt IS NULL"
)


def select(
    reader: Connection, *, after: int, run: int | None, job: int | None, worker: str | None, limit: int
) -> list[Row]:
    """Events with a number above `after`, in order."""
    query = EVENT.select().where(EVENT.seq > after).order_by(EVENT.seq).limit(limit)
    if run is not None:
        query = query.where(EVENT.job_id.between(ids.key(run, 0), ids.span(run)[1]))
    if job is not None:
        query = query.where(EVENT.job_id == job)
    if worker is not None:
        query = query.where(EVENT.worker == worker)
    return reader.query(query)


def newest(reader: Connection) -> int:
    return reader.value("SELECT max(seq) FROM event") or 0


def cancels(tx: Tx, first: int, last: int) -> list[tuple[int, str, str | None]]:
    """What canceled the jobs in a span of keys that were not running: job, actor, data."""
    return tx.rows(CANCELS, (first, last))


def record_queued(tx: Tx, first: int, last: int, actor: str, now: float) -> None:
    """One event for each job in a span of keys, in one statement."""
    tx.record_set(RECORD_QUEUED, (now, actor, first, last))


def count_sent(tx: Tx, job: int, number: int) -> int:
    """How many events of its program an attempt has sent."""
    return int(tx.value("SELECT events FROM attempt WHERE job_id = ? AND number = ?", (job, number)))


def set_sent(tx: Tx, job: int, number: int, count: int) -> None:
    tx.run("UPDATE attempt SET events = ? WHERE job_id = ? AND number = ?", (count, job, number))
