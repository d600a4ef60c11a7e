"""Images that jobs have built, and the machines that have them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from peewee import fn

from deborgen_shared.states import TERMINAL, WorkerState

from .database import DatabaseConnection
from .models import Attempt, Image, ImagePlace, Job, Run, Spec, Submitter, Worker
from .rows import ImageRow, columns
from .transactions import Tx

CURRENT, REPLACED, REMOVED = "current", "replaced", "removed"
Reader = Tx | DatabaseConnection


def _query() -> Any:
    """All images, also removed ones."""
    made = (Attempt.job == Image.job) & (Attempt.number == Image.number)
    query = Image.select(*columns(ImageRow, Image, submitter=Submitter.name, worker=Worker.name))
    query = query.join(Attempt, on=made).join(Worker, on=(Worker.id == Attempt.worker))
    return query.join(Job, on=(Job.id == Image.job)).join(Submitter, on=(Submitter.id == Job.submitter))


def _rows(reader: Reader, query: Any) -> list[ImageRow]:
    return [ImageRow(*row) for row in reader.rows(query)]


def add(tx: Tx, now: float, **values: Any) -> None:
    """Store an image. It takes its name from the image that has had the name so far."""
    same_name = (Image.name == values["name"]) & (Image.standing == CURRENT)
    tx.run(Image.update({Image.standing: REPLACED}).where(same_name))
    tx.run(Image.insert(created_at=now, standing=CURRENT, **values))


def current(reader: Reader, name: str) -> ImageRow | None:
    """The image that has a name and tag now."""
    return _first(reader, _query().where(Image.name == name, Image.standing == CURRENT))


def with_digest(reader: Reader, digest: str) -> ImageRow | None:
    """An image by its id. If several jobs have built the same image, the first of them counts: what a later one
    reports changes nothing about it."""
    return _first(reader, _query().where(Image.digest == digest).order_by(Image.id))


def of_job(reader: Reader, job: int) -> ImageRow | None:
    """The image that a job has built."""
    return _first(reader, _query().where(Image.job == job).order_by(Image.id.desc()))


def _first(reader: Reader, query: Any) -> ImageRow | None:
    rows = _rows(reader, query.limit(1))
    return rows[0] if rows else None


def newest(reader: Reader, *, replaced: bool, before: int | None, limit: int) -> list[ImageRow]:
    query = _query().where(Image.standing.in_([CURRENT, REPLACED] if replaced else [CURRENT]))
    if before is not None:
        query = query.where(Image.id < before)
    return _rows(reader, query.order_by(Image.id.desc()).limit(limit))


def remove(tx: Tx, name: str) -> int:
    """Take away a name and all images that have had it. Their rows go later."""
    gone = (Image.name == name) & (Image.standing != REMOVED)
    return tx.run(Image.update({Image.standing: REMOVED}).where(gone))


def remove_replaced(tx: Tx, first: int, last: int) -> None:
    """Remove the replaced images of the jobs in a span, with the other data of their run."""
    of_span = Image.job.between(first, last) & (Image.standing == REPLACED)
    tx.run(Image.update({Image.standing: REMOVED}).where(of_span))


def removed(reader: Reader) -> list[tuple[int, str, int]]:
    """The images that were removed, and whose rows still exist: id, digest and job."""
    return reader.rows(Image.select(Image.id, Image.digest, Image.job).where(Image.standing == REMOVED))


def needed(reader: Reader) -> tuple[set[int], list[str]]:
    """What unfinished jobs may need: their runs with all runs that these retry, and their specs."""
    unfinished = Job.state.not_in([state.value for state in TERMINAL])
    runs = {row[0] for row in reader.rows(Run.select(Run.id).where(Run.finished_at.is_null()))}
    todo = list(runs)
    while todo:
        of = {row[0] for row in reader.rows(Run.select(Run.retry_of).where(Run.id.in_(todo[:500])))} - {None}
        todo = [*todo[500:], *(of - runs)]
        runs |= of
    used = Job.select(fn.DISTINCT(Job.spec)).where(unfinished)
    return runs, [row[0] for row in reader.rows(Spec.select(Spec.body).where(Spec.id.in_(used)))]


def drop(tx: Tx, wanted: Collection[int]) -> int:
    """Delete the rows of removed images."""
    return tx.run(Image.delete().where(Image.id.in_(list(wanted)), Image.standing == REMOVED)) if wanted else 0


def set_places(tx: Tx, worker_id: int, digests: Collection[str]) -> None:
    """Note which images a machine has."""
    before = {row[0] for row in tx.rows(ImagePlace.select(ImagePlace.digest).where(ImagePlace.worker == worker_id))}
    gone, new = before - set(digests), set(digests) - before
    if gone:
        tx.run(ImagePlace.delete().where(ImagePlace.worker == worker_id, ImagePlace.digest.in_(list(gone))))
    if new:
        tx.run(ImagePlace.insert_many([{"worker": worker_id, "digest": digest} for digest in sorted(new)]))


def places(reader: Reader, digests: Collection[str]) -> dict[str, list[str]]:
    """The names of the machines that have each of these images and have not left."""
    query = ImagePlace.select(ImagePlace.digest, Worker.name).join(Worker)
    query = query.where(ImagePlace.digest.in_(list(digests)), Worker.state != WorkerState.LEFT.value).order_by(
        Worker.name
    )
    found: dict[str, list[str]] = {}
    for digest, name in reader.rows(query) if digests else ():
        found.setdefault(digest, []).append(name)
    return found
