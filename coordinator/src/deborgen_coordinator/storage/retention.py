"""What retention counts and removes: the logs, artifacts, checkpoints and program events of finished runs."""

from __future__ import annotations

from typing import Any

from peewee import fn

from deborgen_shared.program_events import JOB_EVENT

from . import checkpoints
from .blobs import named_by
from .database import DatabaseConnection
from .models import Artifact, Attempt, Blob, CheckpointFile, Event, Job, LogChunk, Run
from .transactions import Tx

_SEALED = Attempt.log_digest.is_null(False)


def referenced_size(reader: DatabaseConnection) -> int:
    """The total size of the blobs of logs, artifacts and checkpoints, counting each blob once."""
    named = named_by(Artifact.digest) | named_by(Attempt.log_digest) | named_by(CheckpointFile.digest)
    return _total(reader, Blob.select(_sum(Blob.size)).where(named))


def size_by_submitter(reader: DatabaseConnection) -> dict[int, int]:
    """The size of the logs, artifacts and checkpoints of each submitter's jobs, by the submitter's id."""
    found: dict[int, int] = {}
    made = Artifact.select(Job.submitter, _sum(Artifact.size)).join(Job, on=(Job.id == Artifact.job))
    logs = Attempt.select(Job.submitter, _sum(Attempt.log_size)).join(Job, on=(Job.id == Attempt.job)).where(_SEALED)
    saved = CheckpointFile.select(Job.submitter, _sum(CheckpointFile.size)).join(Job, on=(Job.id == CheckpointFile.job))
    for query in (made, logs, saved):
        for submitter, size in reader.rows(query.group_by(Job.submitter)):
            found[submitter] = found.get(submitter, 0) + int(size)
    return found


def size_of_jobs(reader: DatabaseConnection, first: int, last: int) -> int:
    """The size of the logs, artifacts and checkpoints of these jobs."""
    made = Artifact.select(_sum(Artifact.size)).where(Artifact.job.between(first, last))
    logs = Attempt.select(_sum(Attempt.log_size)).where(Attempt.job.between(first, last), _SEALED)
    saved = CheckpointFile.select(_sum(CheckpointFile.size)).where(CheckpointFile.job.between(first, last))
    return _total(reader, made) + _total(reader, logs) + _total(reader, saved)


def _sum(column: Any) -> Any:
    return fn.COALESCE(fn.SUM(column), 0)


def _total(reader: DatabaseConnection, query: Any) -> int:
    return int(reader.value(query))


def prunable_runs(reader: DatabaseConnection, before: float, most: int, submitter: int | None = None) -> list[int]:
    """Finished runs, of one submitter or of all, that still have their logs and artifacts, oldest first."""
    query = Run.select(Run.id).where(Run.finished_at < before, Run.pruned_at.is_null())
    if submitter is not None:
        query = query.where(Run.submitter == submitter)
    return [run for (run,) in reader.rows(query.order_by(Run.finished_at).limit(most))]


def end_of_slice(reader: DatabaseConnection, first: int, last: int, most: int) -> int:
    """The last of at most this many jobs, from `first` on; `last` if there are fewer."""
    query = Job.select(Job.id).where(Job.id.between(first, last)).order_by(Job.id).limit(1).offset(most - 1)
    row = reader.one(query)
    return last if row is None else int(row[0])


def prune_jobs(tx: Tx, first: int, last: int) -> None:
    """Remove the logs, artifacts, checkpoints and program events of these jobs. The rest of their history stays."""
    checkpoints.remove(tx, first, last)
    tx.run(Artifact.delete().where(Artifact.job.between(first, last)))
    tx.run(LogChunk.delete().where(LogChunk.job.between(first, last)))
    tx.run(Event.delete().where(Event.job.between(first, last), Event.type == JOB_EVENT))
    # Reset `announced_size` too. Otherwise the log would count as incomplete, and would accept more bytes.
    nothing = {Attempt.log_digest: None, Attempt.log_size: 0, Attempt.announced_size: 0}
    some = _SEALED | (Attempt.log_size > 0) | (Attempt.announced_size > 0)
    tx.run(Attempt.update(nothing).where(Attempt.job.between(first, last), some))


def mark_pruned(tx: Tx, run: int, now: float) -> None:
    tx.run(Run.update({Run.pruned_at: now}).where(Run.id == run, Run.finished_at.is_null(False)))
