"""Blobs, and the rows that refer to them. A blob exists once it has a row, which is written after its file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from peewee import fn

from deborgen_shared.states import TERMINAL, State

from . import hot
from .database import DatabaseConnection
from .models import Artifact, Attempt, Blob, Job, LogChunk, Run, SpecFile
from .statements import Locked
from .transactions import Tx

FILES = (Artifact.path, Artifact.digest, Artifact.size)


def _named_by(column: Any) -> Any:
    return fn.EXISTS(column.model.select(column).where(column == Blob.digest))


def _unreferenced(before: float) -> Any:
    named = _named_by(Artifact.digest) | _named_by(SpecFile.digest) | _named_by(Attempt.log_digest)
    return Blob.select(Blob.digest).where(Blob.touched_at < before, ~named)


def touch_blob(tx: Tx, digest: str, size: int, now: float) -> None:
    """Note that a blob is stored and was just requested: it is kept for at least one more day."""
    new = Blob.insert(digest=digest, size=size, touched_at=now)
    tx.run(new.on_conflict(conflict_target=[Blob.digest], preserve=[Blob.touched_at]))


def touch_known(tx: Tx, digests: Iterable[str], now: float) -> None:
    tx.run(Blob.update({Blob.touched_at: now}).where(Blob.digest.in_(list(digests))))


def known_blobs(reader: Tx | DatabaseConnection, digests: Iterable[str]) -> dict[str, int]:
    """The sizes of the blobs that exist, by digest. A transaction that writes locks them until it ends."""
    statement = hot.lock_blob if isinstance(reader, Tx) else hot.size_of_blob
    found = ((digest, statement.one(reader, digest)) for digest in digests)
    return {digest: row[0] for digest, row in found if row is not None}


def postpone_collection(tx: Tx, touched_at: float) -> None:
    """Treat every blob as requested at this moment or later, so that it is not removed for a while."""
    tx.run(Blob.update({Blob.touched_at: touched_at}).where(Blob.touched_at < touched_at))


def list_all(reader: DatabaseConnection) -> list[tuple[str, int]]:
    """All blobs: digest and size."""
    return reader.rows(Blob.select(Blob.digest, Blob.size).order_by(Blob.digest))


def unreferenced(reader: DatabaseConnection, before: float, most: int) -> list[str]:
    """Blobs that nothing refers to and that nobody has requested since this moment."""
    return [digest for (digest,) in reader.rows(_unreferenced(before).limit(most))]


def delete_row(tx: Tx, digest: str, before: float) -> bool:
    """Delete the row of a blob if nothing refers to the blob; return whether the row was deleted.

    The row is locked before references are looked up. So a writer that is about to refer to the blob has either done so
    already, or finds the row gone.
    """
    tx.rows(Locked(Blob.select(Blob.digest).where(Blob.digest == digest)))
    if not tx.rows(_unreferenced(before).where(Blob.digest == digest)):
        return False
    return tx.run(Blob.delete().where(Blob.digest == digest, Blob.touched_at < before)) == 1


def add_artifacts(tx: Tx, job: int, number: int, artifacts: Sequence[tuple[str, str, int]]) -> None:
    hot.add_artifact.run_many(tx, [(job, number, *artifact) for artifact in artifacts])


def _newest_number(job: Any) -> Any:
    newest = Artifact.alias()
    return newest.select(fn.MAX(newest.number)).where(newest.job == job)


def artifacts(reader: Tx | DatabaseConnection, job: int, number: int | None = None) -> list[tuple[str, str, int]]:
    """The artifacts of one attempt of a job, or of the newest attempt that has artifacts: path, digest, size."""
    wanted = _newest_number(job) if number is None else number
    query = Artifact.select(*FILES).where(Artifact.job == job, Artifact.number == wanted)
    return reader.rows(query.order_by(Artifact.path))


def artifacts_of_jobs(
    reader: DatabaseConnection, first: int, last: int, skip: int, most: int
) -> list[tuple[int, str, str, int]]:
    """The artifacts of the ended jobs in a span, without the first `skip`: job, path, digest, size. For each job they
    come from the newest attempt that has artifacts."""
    ended = Job.state.in_([state.value for state in TERMINAL])
    query = Artifact.select(Artifact.job, *FILES).join(Job, on=(Job.id == Artifact.job))
    query = query.where(Artifact.job.between(first, last), ended, Artifact.number == _newest_number(Artifact.job))
    return reader.rows(query.order_by(Artifact.job, Artifact.path).limit(most).offset(skip))


def artifacts_of_span(reader: Tx | DatabaseConnection, first: int, last: int) -> list[tuple[int, str, str, int]]:
    """The artifacts of the succeeded jobs in a span: job, path, digest, size."""
    newest = (Job.id == Artifact.job) & (Job.last_attempt == Artifact.number)
    query = Artifact.select(Artifact.job, *FILES).join(Job, on=newest)
    query = query.where(Artifact.job.between(first, last), Job.state == State.SUCCEEDED.value)
    return reader.rows(query.order_by(Artifact.job, Artifact.path))


def referenced_size(reader: DatabaseConnection) -> int:
    """The total size of the blobs of logs and artifacts, counting each blob once."""
    named = _named_by(Artifact.digest) | _named_by(Attempt.log_digest)
    return int(reader.value(Blob.select(fn.COALESCE(fn.SUM(Blob.size), 0)).where(named)))


def prunable_runs(reader: DatabaseConnection, before: float, most: int) -> list[int]:
    """Finished runs whose logs and artifacts have not been removed, oldest first."""
    query = Run.select(Run.id).where(Run.finished_at < before, Run.pruned_at.is_null())
    return [run for (run,) in reader.rows(query.order_by(Run.finished_at).limit(most))]


def prune_run(tx: Tx, run: int, first: int, last: int, now: float) -> None:
    """Remove the logs and artifacts of a finished run. Its history stays."""
    tx.run(Artifact.delete().where(Artifact.job.between(first, last)))
    tx.run(LogChunk.delete().where(LogChunk.job.between(first, last)))
    # Reset `announced_size` too. Otherwise the log would count as incomplete, and would accept more bytes.
    nothing = {Attempt.log_digest: None, Attempt.log_size: 0, Attempt.announced_size: 0}
    tx.run(Attempt.update(nothing).where(Attempt.job.between(first, last)))
    tx.run(Run.update({Run.pruned_at: now}).where(Run.id == run, Run.finished_at.is_null(False)))
