"""Blobs, and the rows that refer to them. A blob exists once it has a row, which is written after its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from peewee import JOIN, SQL, fn

from deborgen_shared.states import TERMINAL, State

from . import hot, uploads
from .database import DatabaseConnection
from .models import Artifact, Attempt, Blob, CheckpointFile, Image, Job, SpecFile, Upload
from .statements import Locked
from .transactions import Tx

FILES = (Artifact.path, Artifact.digest, Artifact.size)
UPLOAD = fn.COALESCE(Blob.upload, "")


def named_by(column: Any) -> Any:
    return fn.EXISTS(column.model.select(column).where(column == Blob.digest))


def _unreferenced(before: float) -> Any:
    named = named_by(Artifact.digest) | named_by(SpecFile.digest) | named_by(Attempt.log_digest)
    named |= named_by(Image.archive) | named_by(CheckpointFile.digest)
    return Blob.select(Blob.digest).where(Blob.touched_at < before, ~named)


class Stored(NamedTuple):
    """A blob that exists: its size, and its upload in the object store, empty if it is in the local folder."""

    size: int
    upload: str


def touch_blob(tx: Tx, digest: str, size: int, now: float, upload: str = "") -> None:
    """Note that a blob is stored and was just requested: it is kept for at least one more day.

    A blob that exists already stays where it is, and the object of this upload becomes superfluous.
    """
    new = Blob.insert(digest=digest, size=size, touched_at=now, upload=upload)
    tx.run(new.on_conflict(conflict_target=[Blob.digest], preserve=[Blob.touched_at]))
    if upload:
        uploads.settle(tx, digest, upload)


def move(tx: Tx, digest: str, source: str, target: str) -> bool:
    """Note that a blob is now at another place; False if it was not at `source` any more."""
    here = (Blob.digest == digest) & (Blob.upload == source)
    moved = tx.run(Blob.update({Blob.upload: target}).where(here)) == 1
    if target:
        uploads.settle(tx, digest, target)
    if source and moved:
        uploads.condemn(tx, digest, source)
    return moved


def drop(tx: Tx, digest: str, upload: str) -> bool:
    """Delete the row of a blob whose bytes are wrong, whatever refers to it; False if it is somewhere else by now."""
    dropped = tx.run(Blob.delete().where(Blob.digest == digest, Blob.upload == upload)) == 1
    if dropped and upload:
        uploads.condemn(tx, digest, upload)
    return dropped


def touch_known(tx: Tx, digests: Iterable[str], now: float) -> None:
    tx.run(Blob.update({Blob.touched_at: now}).where(Blob.digest.in_(list(digests))))


def known_blobs(reader: Tx | DatabaseConnection, digests: Iterable[str]) -> dict[str, int]:
    """The sizes of the blobs that exist, by digest. A transaction that writes locks them until it ends."""
    statement = hot.lock_blob if isinstance(reader, Tx) else hot.find_blob
    found = ((digest, statement.one(reader, digest)) for digest in digests)
    return {digest: row[0] for digest, row in found if row is not None}


def find(reader: Tx | DatabaseConnection, digest: str) -> Stored | None:
    row = hot.find_blob.one(reader, digest)
    return None if row is None else Stored(*row)


def postpone_collection(tx: Tx, touched_at: float) -> None:
    """Treat every blob as requested at this moment or later, so that it is not removed for a while."""
    tx.run(Blob.update({Blob.touched_at: touched_at}).where(Blob.touched_at < touched_at))


def list_all(reader: DatabaseConnection) -> list[tuple[str, int, str]]:
    """All blobs: digest, size and upload."""
    return reader.rows(Blob.select(Blob.digest, Blob.size, Blob.upload).order_by(Blob.digest))


def list_after(reader: DatabaseConnection, digest: str, *, remote: bool, most: int) -> list[tuple[str, int, str]]:
    """Blobs of the object store or of the local folder, in the order of their digests: digest, size and upload."""
    place = (Blob.upload != SQL("''")) if remote else (Blob.upload == SQL("''"))
    query = Blob.select(Blob.digest, Blob.size, Blob.upload).where(Blob.digest > digest, place)
    return reader.rows(query.order_by(Blob.digest).limit(most))


def set_uploads(tx: Tx, uploads_of: Mapping[str, str]) -> None:
    """Note where the blobs of a restored backup are. The uploads of the old pool are not ours."""
    tx.run(Upload.delete())
    tx.run(Blob.update({Blob.upload: ""}).where(Blob.upload != SQL("''")))
    for digest, upload in uploads_of.items():
        tx.run(Blob.update({Blob.upload: upload}).where(Blob.digest == digest))


def unreferenced(reader: DatabaseConnection, before: float, after: str, most: int) -> list[str]:
    """Blobs that nothing refers to and that nobody has requested since this moment, in the order of their digests."""
    query = _unreferenced(before).where(Blob.digest > after).order_by(Blob.digest)
    return [digest for (digest,) in reader.rows(query.limit(most))]


def delete_row(tx: Tx, digest: str, before: float) -> str | None:
    """Delete the row of a blob if nothing refers to the blob; return where its bytes are, or None if it was kept.

    An object in the object store is removed later, by the key of its own upload.

    The row is locked before references are looked up. So a writer that is about to refer to the blob has either done so
    already, or finds the row gone.
    """
    found = tx.rows(Locked(Blob.select(Blob.upload).where(Blob.digest == digest)))
    if not found or not tx.rows(_unreferenced(before).where(Blob.digest == digest)):
        return None
    if tx.run(Blob.delete().where(Blob.digest == digest, Blob.touched_at < before)) != 1:
        return None
    upload: str = found[0][0]
    if upload:
        uploads.condemn(tx, digest, upload)
    return upload


def add_artifacts(tx: Tx, job: int, number: int, artifacts: Sequence[tuple[str, str, int]]) -> None:
    hot.add_artifact.run_many(tx, [(job, number, *artifact) for artifact in artifacts])


def _with_upload(query: Any) -> Any:
    return query.join(Blob, JOIN.LEFT_OUTER, on=(Blob.digest == Artifact.digest))


def _newest_number(job: Any) -> Any:
    newest = Artifact.alias()
    return newest.select(fn.MAX(newest.number)).where(newest.job == job)


def artifacts(reader: Tx | DatabaseConnection, job: int, number: int | None = None) -> list[tuple[str, str, int, str]]:
    """The artifacts of one attempt of a job, or of the newest attempt that has any: path, digest, size, upload."""
    wanted = _newest_number(job) if number is None else number
    query = _with_upload(Artifact.select(*FILES, UPLOAD)).where(Artifact.job == job, Artifact.number == wanted)
    return reader.rows(query.order_by(Artifact.path))


def artifacts_of_jobs(
    reader: DatabaseConnection, first: int, last: int, skip: int, most: int
) -> list[tuple[int, str, str, int, str]]:
    """The artifacts of the ended jobs in a span, without the first `skip`: job, path, digest, size, upload. For each
    job they come from the newest attempt that has artifacts."""
    ended = Job.state.in_([state.value for state in TERMINAL])
    query = _with_upload(Artifact.select(Artifact.job, *FILES, UPLOAD)).join_from(
        Artifact, Job, on=(Job.id == Artifact.job)
    )
    query = query.where(Artifact.job.between(first, last), ended, Artifact.number == _newest_number(Artifact.job))
    return reader.rows(query.order_by(Artifact.job, Artifact.path).limit(most).offset(skip))


def artifacts_of_span(reader: Tx | DatabaseConnection, first: int, last: int) -> list[tuple[int, str, str, int]]:
    """The artifacts of the succeeded jobs in a span: job, path, digest, size."""
    newest = (Job.id == Artifact.job) & (Job.last_attempt == Artifact.number)
    query = Artifact.select(Artifact.job, *FILES).join(Job, on=newest)
    query = query.where(Artifact.job.between(first, last), Job.state == State.SUCCEEDED.value)
    return reader.rows(query.order_by(Artifact.job, Artifact.path))
