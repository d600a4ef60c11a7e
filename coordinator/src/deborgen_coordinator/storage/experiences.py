"""The experiences of workers: which images and workspaces work there, and which fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from peewee import SQL

from . import hot
from .database import DatabaseConnection
from .models import Experience
from .transactions import Tx

#: While a subject keeps working on a worker, its row is updated at most once per this many seconds.
REFRESH_SECONDS = 3600.0


class TroubleRow(NamedTuple):
    """A worker fails with a subject. Until `avoid_clock`, other workers come first."""

    worker_id: int
    subject: str
    reason: str
    at: float
    avoid_clock: float


def note_success(tx: Tx, worker_id: int, subjects: Iterable[str], now: float) -> None:
    """A worker has prepared these subjects, and a program has run with them."""
    for subject in subjects:
        row = hot.experience.one(tx, subject, worker_id)
        if row is None or row[0] or now - row[1] > REFRESH_SECONDS:
            _save(tx, worker_id, subject, failures=0, avoid_clock=0.0, reason="", at=now)


def failures(tx: Tx, worker_id: int, subject: str) -> int:
    """How many times in a row the worker has failed with this subject."""
    row = hot.experience.one(tx, subject, worker_id)
    return int(row[0]) if row else 0


def note_failure(tx: Tx, trouble: TroubleRow, count: int) -> None:
    """A worker has failed with a subject, for the `count`th time in a row."""
    _save(
        tx, trouble.worker_id, trouble.subject,
        failures=count, avoid_clock=trouble.avoid_clock, reason=trouble.reason, at=trouble.at,
    )  # fmt: skip


def _save(tx: Tx, worker_id: int, subject: str, **columns: float | str) -> None:
    new = Experience.insert(subject=subject, worker=worker_id, **columns)
    target = [Experience.subject, Experience.worker]
    tx.run(new.on_conflict(conflict_target=target, preserve=[getattr(Experience, each) for each in columns]))


def works_elsewhere(tx: Tx, subject: str, worker_id: int) -> bool:
    """Whether this subject works on another worker."""
    others = (Experience.subject == subject) & (Experience.worker != worker_id) & (Experience.failures == 0)
    return tx.one(Experience.select(Experience.worker).where(others).limit(1)) is not None


def avoided_by(tx: Tx, worker_id: int, clock: float) -> set[str]:
    """The subjects for which other workers come first."""
    return {subject for (subject,) in hot.avoided_subjects.rows(tx, worker_id, clock)}


def troubles(reader: Tx | DatabaseConnection) -> list[TroubleRow]:
    """All subjects with which workers fail, newest first."""
    query = Experience.select(
        Experience.worker, Experience.subject, Experience.reason, Experience.at, Experience.avoid_clock
    )
    query = query.where(Experience.failures > SQL("0")).order_by(Experience.at.desc())
    return [TroubleRow(*row) for row in reader.rows(query)]


def forget(tx: Tx, before: float) -> int:
    """Remove rows that nothing has changed since this time."""
    return tx.run(Experience.delete().where(Experience.at < before))
