"""The jobs of loops: where each stands, and the jobs that are added round by round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peewee import JOIN, Value, fn

from deborgen_shared.states import Phase, State

from ..loops import Place
from .database import DatabaseConnection
from .jobs import JobWithResult, with_results
from .models import Artifact, Job
from .statements import Statement
from .transactions import Tx

Reader = Tx | DatabaseConnection

#: The check of a job's round, and another job of the same loop.
Check, Later = Job.alias(), Job.alias()
CHECK = (Check.point == Job.point) & (Check.round == Job.round) & (Check.phase == Phase.VERIFY.value)
IS_WORK = Job.phase == Phase.WORK.value
#: What a further job of a loop has in common with the job before it.
COPIED = (Job.step, Job.spec, Job.job_class, Job.submitter, Job.rank, Job.params)


def place_of(reader: Reader, job: int) -> Place:
    """Where a job of a loop stands."""
    [(point, number, phase)] = reader.rows(Job.select(Job.point, Job.round, Job.phase).where(Job.id == job))
    return Place(point, number, Phase(phase))


@Statement
def _place(number: Any, phase: Any, job: Any) -> Any:
    return Job.update({Job.point: Job.id, Job.round: number, Job.phase: phase}).where(Job.id == job)


def place(tx: Tx, places: Iterable[Place]) -> None:
    """Let loops begin: each of these new jobs is the first of a loop, and stands at this place."""
    _place.run_many(tx, [(each.round, each.phase.value, each.point) for each in places])


def add(tx: Tx, key: int, after: int, place: Place, now: float) -> None:
    """Add a queued job to a loop: a copy of the job before it, at another place."""
    own: dict[Any, Any] = {
        Job.id: key, Job.state: State.QUEUED.value, Job.ready: 1, Job.point: place.point, Job.round: place.round,
        Job.phase: place.phase.value, Job.created_at: now,
    }  # fmt: skip
    tx.run(Job.insert_from(Job.select(*COPIED, *map(Value, own.values())).where(Job.id == after), [*COPIED, *own]))


def created_at(reader: Reader, job: int) -> float | None:
    """When a loop added the job; None if it was submitted with its run."""
    [(made_at,)] = reader.rows(Job.select(Job.created_at).where(Job.id == job))
    return None if made_at is None else float(made_at)


def job_at(reader: Reader, place: Place) -> int | None:
    """The job at this place, if there is one."""
    this = (Job.point == place.point) & (Job.round == place.round) & (Job.phase == place.phase.value)
    row = reader.rows(Job.select(Job.id).where(this))
    return int(row[0][0]) if row else None


def work_of(reader: Reader, point: int, number: int) -> int | None:
    """The job that did the work of a round, if it has succeeded."""
    this = (Job.point == point) & (Job.round == number) & IS_WORK & (Job.state == State.SUCCEEDED.value)
    row = reader.rows(Job.select(Job.id).where(this))
    return int(row[0][0]) if row else None


def artifacts_of_verified(reader: Reader, first: int, last: int) -> list[tuple[int, int, str, str, int]]:
    """The artifacts of the rounds that were verified, of the loops in a span: point, job, path, digest, size."""
    newest = (Job.id == Artifact.job) & (Job.last_attempt == Artifact.number)
    query = Artifact.select(Job.point, Artifact.job, Artifact.path, Artifact.digest, Artifact.size)
    query = query.join(Job, on=newest).join(Check, on=CHECK)
    query = query.where(Job.point.between(first, last), IS_WORK, Check.verified == 1)
    return reader.rows(query.order_by(Artifact.job, Artifact.path))


def checked_elsewhere(reader: Reader, first: int, last: int) -> list[tuple[Place, bool | None]]:
    """The rounds of the loops in a span whose work was done in an earlier run, each with the answer of its check."""
    has_work = fn.EXISTS(Job.select(Job.id).where(Job.point == Check.point, Job.round == Check.round, IS_WORK))
    query = Check.select(Check.point, Check.round, Check.verified)
    query = query.where(Check.point.between(first, last), Check.phase == Phase.VERIFY.value, ~has_work)
    return [(Place(point, number, Phase.WORK), _answer(said)) for point, number, said in reader.rows(query)]


def last_works(reader: DatabaseConnection, first: int, last: int) -> dict[int, JobWithResult]:
    """The newest work of each loop in a span, by the id of the loop's first job, for the results table."""
    later = fn.EXISTS(
        Later.select(Later.id).where(Later.point == Job.point, Later.phase == Job.phase, Later.round > Job.round)
    )
    chosen = Job.point.between(first, last) & IS_WORK & ~later
    query = with_results(chosen, Job.round, Check.verified, Job.point)
    query = query.join_from(Job, Check, JOIN.LEFT_OUTER, on=CHECK)
    found = {}
    for *row, number, said, point in reader.rows(query):
        found[point] = JobWithResult(*row)._replace(round=number, verified=_answer(said))
    return found


def _answer(said: int | None) -> bool | None:
    return None if said is None else bool(said)
