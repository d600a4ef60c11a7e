"""The history: appended to in transactions, read by cursor."""

from __future__ import annotations

from typing import Any

import peewee

from deborgen_shared.states import State

from .. import ids
from .database import Connection, Row
from .transactions import Tx

EVENT: Any = peewee.Table("event", "seq time type job_id attempt worker actor old_state new_state data".split())


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
    query = (
        EVENT.select(
            EVENT.seq,
            EVENT.time,
            EVENT.type,
            EVENT.job_id,
            EVENT.attempt,
            EVENT.worker,
            EVENT.actor,
            EVENT.old_state,
            EVENT.new_state,
            EVENT.data,
        )
        .where(EVENT.seq > after)
        .order_by(EVENT.seq)
        .limit(limit)
    )
    if run is not None:
        query = query.where(EVENT.job_id.between(ids.key(run, 0), ids.span(run)[1]))
    if job is not None:
        query = query.where(EVENT.job_id == job)
    if worker is not None:
        query = query.where(EVENT.worker == worker)
    return reader.query(query)


def newest(reader: Connection) -> int:
    row = reader.one("SELECT max(seq) FROM event")
    return int(row[0]) if row and row[0] else 0


def cancels(tx: Tx, first: int, last: int) -> list[tuple[int, str, str | None]]:
    """What canceled the jobs in a span of keys that were not running: job, actor, data."""
    return tx.rows(CANCELS, (first, last))


def record_queued(tx: Tx, first: int, last: int, actor: str, now: float) -> None:
    """One event for each job in a span of keys, in one statement."""
    tx.record_set(RECORD_QUEUED, (now, actor, first, last))
