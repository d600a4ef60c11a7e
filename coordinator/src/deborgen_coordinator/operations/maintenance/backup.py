"""Backup: one file with every row and every blob.

The file is a compressed tar archive. First comes one `tables/NAME.jsonl` per table, then one `blobs/DIGEST` per blob of
the table `blob`, and last `manifest.json` with the digest of each table. An archive without its manifest is incomplete,
and is refused. The format of the tables does not depend on the database: a backup of SQLite restores into PostgreSQL,
and vice versa.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import IO

from deborgen_shared.durable import sync_file, sync_folder
from deborgen_shared.errors import Code, Refusal

from ...storage import blobs as blob_rows
from ...storage import dump
from ...storage.database import DatabaseConnection, DatabaseUnavailable
from ...storage.schema import latest
from .. import artifact_store
from ..context import Context
from .retention import DAY

FORMAT = 1
MANIFEST = "manifest.json"
#: A backup keeps blobs from being removed while it runs. Each time, it postpones their removal by this many seconds.
HOLD_SECONDS = 3_600.0


def backup(ctx: Context, file: str | Path) -> dict[str, int]:
    """Write a snapshot of everything to a file that appears only when it is complete; return the rows per table."""
    artifact_store.require(ctx)
    target = Path(file)
    partial = target.with_name(target.name + ".partial")
    hold = _Hold(ctx)
    hold.renew()
    try:
        with tarfile.open(partial, "w:gz", compresslevel=3) as archive, ctx.store.reading() as reader:
            counts, members = _write(ctx, reader, archive, hold)
            manifest = {"format": FORMAT, "schema": latest(), "rows": counts, "members": members}
            _add(archive, MANIFEST, io.BytesIO(json.dumps(manifest).encode()))
        with partial.open("rb") as written:
            sync_file(written)
        partial.replace(target)
        sync_folder(target.parent)
    finally:
        partial.unlink(missing_ok=True)
    return counts


class _Hold:
    """Keeps a running coordinator from removing blobs that the backup has not written yet."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        #: When the hold was last renewed, on the steady clock.
        self._renewed_at: float | None = None

    def renew(self) -> None:
        steady = self._ctx.clock.steady()
        if self._renewed_at is not None and steady - self._renewed_at < HOLD_SECONDS / 4:
            return
        self._renewed_at = steady
        # A blob may be removed a day after it was last touched.
        touched_at = self._ctx.clock.wall() - DAY + HOLD_SECONDS
        with contextlib.suppress(DatabaseUnavailable):  # a full disk must not prevent a backup
            self._ctx.store.write(lambda tx: blob_rows.postpone_collection(tx, touched_at))


def _write(
    ctx: Context, reader: DatabaseConnection, archive: tarfile.TarFile, hold: _Hold
) -> tuple[dict[str, int], dict[str, str]]:
    counts: dict[str, int] = {}
    members: dict[str, str] = {}
    for table in dump.tables():
        hold.renew()
        name = f"tables/{table}.jsonl"
        with tempfile.TemporaryFile() as buffer:
            # The first line of a dump names the columns, so it is not counted as a row.
            counts[table] = _copy(buffer, dump.dump_rows(reader, table)) - 1
            members[name] = _add(archive, name, buffer)
    for digest, size, upload in blob_rows.list_all(reader):
        hold.renew()
        place = _place(ctx, digest, size, upload)
        if place is None:
            raise _refusal(f"blob {digest} is incomplete", upload)
        with tempfile.TemporaryFile() as buffer:
            _copy(buffer, ctx.blobs.open_range(digest, 0, size, place))
            if _add(archive, f"blobs/{digest}", buffer) != digest:
                raise _refusal(f"blob {digest} is damaged", place)
    return counts, members


def _place(ctx: Context, digest: str, size: int, upload: str) -> str | None:
    """Where the whole blob is. It may have been moved since the snapshot was taken."""
    if ctx.blobs.size(digest, upload) == size:
        return upload
    moved = ctx.store.read(partial(blob_rows.find, digest=digest))
    return moved.upload if moved and ctx.blobs.size(digest, moved.upload) == size else None


def _refusal(problem: str, upload: str) -> Refusal:
    where = "the object store" if upload else "the disk"
    return Refusal(Code.UNAVAILABLE, problem, f"nothing was backed up; check {where}")


def _copy(buffer: IO[bytes], pieces: Iterable[bytes]) -> int:
    """Write the pieces to a temporary file; return how many there were."""
    count = 0
    for piece in pieces:
        buffer.write(piece)
        count += 1
    return count


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> str:
    """Write a member of the archive; return its digest."""
    content.seek(0)
    digest = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
    info = tarfile.TarInfo(name)
    info.size = content.seek(0, os.SEEK_END)
    info.mode = 0o600
    content.seek(0)
    archive.addfile(info, content)
    return digest
