"""Checkpoints: what a job's attempts have saved last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from peewee import fn

from .database import DatabaseConnection
from .models import Attempt, Checkpoint, CheckpointFile
from .transactions import Tx

#: Remove the files with at most this many paths in one statement.
PATHS_AT_ONCE = 400


class CheckpointRow(NamedTuple):
    attempt: int
    number: int
    saved_at: float


class FileRow(NamedTuple):
    digest: str
    size: int
    mode: int


def get(reader: Tx | DatabaseConnection, job: int) -> CheckpointRow | None:
    """The job's checkpoint."""
    found = reader.rows(
        Checkpoint.select(Checkpoint.attempt, Checkpoint.number, Checkpoint.saved_at).where(Checkpoint.job == job)
    )
    return CheckpointRow(*found[0]) if found else None


def files(reader: Tx | DatabaseConnection, job: int) -> dict[str, FileRow]:
    """The files of the job's checkpoint, by path."""
    query = CheckpointFile.select(
        CheckpointFile.path, CheckpointFile.digest, CheckpointFile.size, CheckpointFile.mode
    ).where(CheckpointFile.job == job)
    return {path: FileRow(*row) for path, *row in reader.rows(query.order_by(CheckpointFile.path))}


def amount(reader: DatabaseConnection, job: int) -> tuple[int, int]:
    """The number and the total size of the files of the job's checkpoint."""
    query = CheckpointFile.select(fn.COUNT(CheckpointFile.path), fn.COALESCE(fn.SUM(CheckpointFile.size), 0))
    [(count, size)] = reader.rows(query.where(CheckpointFile.job == job))
    return int(count), int(size)


def replace(tx: Tx, job: int, row: CheckpointRow, wanted: Mapping[str, FileRow], stored: Mapping[str, FileRow]) -> None:
    """Store a checkpoint in the place of the one that has the files `stored`. Only what differs is written."""
    new = Checkpoint.insert(job=job, attempt=row.attempt, number=row.number, saved_at=row.saved_at)
    kept = [Checkpoint.attempt, Checkpoint.number, Checkpoint.saved_at]
    tx.run(new.on_conflict(conflict_target=[Checkpoint.job], preserve=kept))
    gone = [path for path in stored if stored[path] != wanted.get(path)]
    for at in range(0, len(gone), PATHS_AT_ONCE):
        some = CheckpointFile.path.in_(gone[at : at + PATHS_AT_ONCE])
        tx.run(CheckpointFile.delete().where(CheckpointFile.job == job, some))
    columns = ["job_id", "path", "digest", "size", "mode"]
    new_rows = ((job, path, *file) for path, file in wanted.items() if file != stored.get(path))
    tx.connection.bulk_insert(CheckpointFile, columns, new_rows)


def remove(tx: Tx, first: int, last: int) -> None:
    """Remove the checkpoints of the jobs in a span. Their blobs are collected later."""
    tx.run(CheckpointFile.delete().where(CheckpointFile.job.between(first, last)))
    tx.run(Checkpoint.delete().where(Checkpoint.job.between(first, last)))


def note_restored(tx: Tx, job: int, number: int, attempt: int, checkpoint: int) -> None:
    """Note from which checkpoint an attempt goes on."""
    change = {Attempt.from_attempt: attempt, Attempt.from_checkpoint: checkpoint}
    tx.run(Attempt.update(change).where(Attempt.job == job, Attempt.number == number))
