"""Objects of the object store that are not blobs: uploads that have not been completed, and what is to be removed.

An upload has its row before anybody can put bytes there, so no object is ever forgotten.
"""

from __future__ import annotations

from typing import NamedTuple

from peewee import SQL, fn

from .database import DatabaseConnection
from .models import ArtifactStore, Blob, Upload
from .transactions import Tx


class UploadRow(NamedTuple):
    id: str
    digest: str
    size: int
    owner: str
    multipart: str
    created_at: float


COLUMNS = (Upload.id, Upload.digest, Upload.size, Upload.owner, Upload.multipart, Upload.created_at)


def add(tx: Tx, rows: list[UploadRow]) -> None:
    for row in rows:
        tx.run(Upload.insert(row._asdict()))


def set_multipart(tx: Tx, upload: str, multipart: str) -> None:
    tx.run(Upload.update({Upload.multipart: multipart}).where(Upload.id == upload))


def find(reader: Tx | DatabaseConnection, upload: str, digest: str) -> UploadRow | None:
    """An upload of this digest that has not been condemned."""
    row = reader.one(Upload.select(*COLUMNS).where(Upload.id == upload, Upload.digest == digest, Upload.created_at > 0))
    return None if row is None else UploadRow(*row)


def resumable(reader: DatabaseConnection, digest: str, owner: str, since: float) -> UploadRow | None:
    """The newest upload of this blob that this person has begun since then."""
    query = Upload.select(*COLUMNS).where(Upload.digest == digest, Upload.owner == owner, Upload.created_at >= since)
    row = reader.one(query.order_by(Upload.created_at.desc()).limit(1))
    return None if row is None else UploadRow(*row)


def unfinished_bytes(reader: DatabaseConnection, owner: str) -> int:
    """The size of this person's uploads that are not complete."""
    size = fn.COALESCE(fn.SUM(Upload.size), 0)
    return int(reader.value(Upload.select(size).where(Upload.owner == owner, Upload.created_at > 0)))


def settle(tx: Tx, digest: str, upload: str) -> None:
    """An upload is complete: it is the blob's, or superfluous if the blob's row names another one."""
    row = tx.one(Blob.select(Blob.upload).where(Blob.digest == digest))
    if row is not None and row[0] == upload:
        tx.run(Upload.delete().where(Upload.id == upload))
    else:
        condemn(tx, digest, upload)


def condemn(tx: Tx, digest: str, upload: str) -> None:
    """Have the object removed."""
    if not tx.run(Upload.update({Upload.created_at: 0.0}).where(Upload.id == upload)):
        add(tx, [UploadRow(upload, digest, 0, "", "", 0.0)])


def condemn_old(tx: Tx, upload: str, before: float) -> bool:
    """Have an old upload removed; False if it was completed meanwhile."""
    old = (Upload.id == upload) & (Upload.created_at < before)
    return tx.run(Upload.update({Upload.created_at: 0.0}).where(old)) == 1


def old(reader: DatabaseConnection, before: float, most: int) -> list[UploadRow]:
    """Uploads that were begun before this moment, and what was condemned."""
    query = Upload.select(*COLUMNS).where(Upload.created_at < before).order_by(Upload.created_at).limit(most)
    return [UploadRow(*row) for row in reader.rows(query)]


def forget(tx: Tx, upload: str) -> None:
    """Delete the row of an upload whose object was removed."""
    tx.run(Upload.delete().where(Upload.id == upload))


def used_store(reader: DatabaseConnection) -> str:
    """The address of the object store that the coordinators use; empty if they use none."""
    row = reader.one(ArtifactStore.select(ArtifactStore.address).limit(1))
    return row[0] if row else ""


def has_remote_blobs(reader: DatabaseConnection) -> bool:
    return reader.one(Blob.select(SQL("1")).where(Blob.upload != SQL("''")).limit(1)) is not None


def use_store(tx: Tx, address: str) -> None:
    tx.run(ArtifactStore.delete().where(ArtifactStore.address != address))
    if address:
        new = ArtifactStore.insert(address=address)
        tx.run(new.on_conflict(action="nothing", conflict_target=[ArtifactStore.address]))
