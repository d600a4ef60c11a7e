"""What ran on machines in a stretch of time, and when they were paused or away: bounded numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .database import DatabaseConnection
from .hot import LIVE
from .models import Attempt, Event, Job, Submitter


class RanRow(NamedTuple):
    """An attempt, for a timeline. `outcome` is None while it is live."""

    job: int
    number: int
    worker_id: int
    person: str
    spec_id: int
    claimed_at: float
    began_at: float | None
    finished_at: float | None
    outcome: str | None
    reason: str
    exit_code: int | None
    image: str
    cpu_seconds: float | None
    peak_memory: int | None


_COLUMNS = (
    Attempt.job, Attempt.number, Attempt.worker, Submitter.name, Job.spec, Attempt.claimed_at, Attempt.began_at,
    Attempt.finished_at, Attempt.outcome, Attempt.reason, Attempt.exit_code, Attempt.image, Attempt.cpu_seconds,
    Attempt.peak_memory,
)  # fmt: skip


def _attempts(condition: Any, order: Any, most: int) -> Any:
    query = Attempt.select(*_COLUMNS).join(Job, on=(Job.id == Attempt.job))
    return query.join(Submitter, on=(Submitter.id == Job.submitter)).where(condition).order_by(order).limit(most)


def ended(reader: DatabaseConnection, worker_id: int, since: float, most: int) -> list[RanRow]:
    """The last attempts that ended on a machine since then, newest first."""
    chosen = (Attempt.worker == worker_id) & (Attempt.finished_at >= since)
    return [RanRow(*row) for row in reader.rows(_attempts(chosen, Attempt.finished_at.desc(), most))]


def live(reader: DatabaseConnection, worker_ids: Sequence[int], most: int) -> list[RanRow]:
    """The live attempts on these machines, or the first of very many."""
    if not worker_ids:
        return []
    chosen = Attempt.worker.in_(worker_ids) & LIVE
    return [RanRow(*row) for row in reader.rows(_attempts(chosen, Attempt.job, most))]


def machine_events(reader: DatabaseConnection, worker: str, most: int) -> list[tuple[float, str, str | None]]:
    """The last events of a machine itself, newest first: time, type and data."""
    own = (Event.worker == worker) & Event.job.is_null()
    query = Event.select(Event.time, Event.type, Event.data).where(own).order_by(Event.seq.desc()).limit(most)
    return reader.rows(query)
