"""The jobs of a run that share a reason or a warning, counted together."""

from __future__ import annotations

from typing import Any, NamedTuple

from peewee import fn

from deborgen_shared.states import State

from .database import DatabaseConnection
from .models import Attempt, Job


class GroupRow(NamedTuple):
    """The number of jobs with the same text, and the first of them; `wait_clock` is when their next try is due."""

    text: str
    jobs: int
    first: int
    wait_clock: float | None = None


def failed(reader: DatabaseConnection, first: int, last: int, most: int) -> list[GroupRow]:
    """The failed jobs in the span by reason, the largest groups first."""
    chosen = Job.id.between(first, last) & (Job.state == State.FAILED.value)
    return _groups(reader, Job.reason, chosen, most)


def waiting(reader: DatabaseConnection, first: int, last: int, most: int) -> list[GroupRow]:
    """The jobs in the span that wait before their next try, by the reason why the last one ended."""
    chosen = Job.id.between(first, last) & Job.wait_clock.is_null(False)
    return _groups(reader, Job.reason, chosen, most, fn.MIN(Job.wait_clock))


def warned(reader: DatabaseConnection, first: int, last: int) -> list[GroupRow]:
    """The jobs in the span by their warnings, each group with its warnings as a JSON list."""
    return _groups(reader, Job.warnings, Job.id.between(first, last) & Job.warnings.is_null(False), None)


def _groups(reader: DatabaseConnection, text: Any, chosen: Any, most: int | None, *more: Any) -> list[GroupRow]:
    """The chosen jobs, grouped by the column `text`."""
    query = Job.select(text, fn.COUNT(Job.id), fn.MIN(Job.id), *more).where(chosen).group_by(text)
    query = query.order_by(fn.COUNT(Job.id).desc(), fn.MIN(Job.id))
    return [GroupRow(*row) for row in reader.rows(query.limit(most) if most else query)]


def assigned(reader: DatabaseConnection, first: int, last: int) -> int:
    """How many attempts in the span are held by a worker that has not started their programs yet."""
    live = Attempt.job.between(first, last) & Attempt.outcome.is_null()
    ((count,),) = reader.rows(Attempt.select(fn.COUNT(Attempt.job)).where(live, Attempt.began_at.is_null()))
    return int(count)
