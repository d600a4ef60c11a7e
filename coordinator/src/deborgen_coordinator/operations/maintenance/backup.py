"""Backup and restore: one file with every row and every blob, which is checked completely before it is restored.

The file is a tar archive. First comes one `tables/NAME.jsonl` per table, then one `blobs/DIGEST` per blob, and last
`manifest.json` with the digest of each table. An archive without its manifest is incomplete, and is refused. The format
of the tables does not depend on the database: a backup of SQLite restores into PostgreSQL, and vice versa.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from deborgen_shared.durable import sync_file, sync_folder
from deborgen_shared.errors import Code, Refusal

from ...blobs import BlobStore
from ...storage import blobs as blob_rows
from ...storage import dump
from ...storage.database import DatabaseConnection, DatabaseUnavailable
from ...storage.schema import latest
from ...storage.transactions import Tx
from ..context import Context
from .cleanup import DAY

FORMAT = 1
MANIFEST = "manifest.json"
PIECE = 1 << 20
#: During a backup no blob is garbage collected: the backup keeps postponing that by this many seconds.
HOLD_SECONDS = 3_600.0


def backup(ctx: Context, file: str | Path) -> dict[str, int]:
    """Write a snapshot of everything to a file that appears only when it is complete; return the rows per table."""
    target = Path(file)
    partial = target.with_name(target.name + ".partial")
    hold = _Hold(ctx)
    hold.renew()
    try:
        with tarfile.open(partial, "w:gz", compresslevel=3) as archive, ctx.store.reading() as reader:
            counts, members = _write(ctx.blobs, reader, archive, hold)
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
    """Keeps a running coordinator from collecting blobs that the backup has not written yet."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._held: float | None = None

    def renew(self) -> None:
        steady = self._ctx.clock.steady()
        if self._held is not None and steady - self._held < HOLD_SECONDS / 4:
            return
        self._held = steady
        # A blob may be collected a day after it was last touched.
        touched_at = self._ctx.clock.wall() - DAY + HOLD_SECONDS
        with contextlib.suppress(DatabaseUnavailable):  # a full disk must not prevent a backup
            self._ctx.store.write(lambda tx: blob_rows.postpone_collection(tx, touched_at))


def _write(
    blobs: BlobStore, reader: DatabaseConnection, archive: tarfile.TarFile, hold: _Hold
) -> tuple[dict[str, int], dict[str, str]]:
    counts: dict[str, int] = {}
    members: dict[str, str] = {}
    for table in dump.tables():
        hold.renew()
        name = f"tables/{table}.jsonl"
        with tempfile.TemporaryFile() as spool:
            # The first line of a dump names the columns, so it is not counted as a row.
            counts[table] = _spool(spool, dump.rows_out(reader, table)) - 1
            members[name] = _add(archive, name, spool)
    for digest, size in blob_rows.list_all(reader):
        hold.renew()
        if blobs.size(digest) != size:
            raise Refusal(Code.UNAVAILABLE, f"blob {digest} is incomplete", "nothing was backed up; check the disk")
        with tempfile.TemporaryFile() as spool:
            _spool(spool, blobs.open_range(digest, 0, size))
            if _add(archive, f"blobs/{digest}", spool) != digest:
                raise Refusal(Code.UNAVAILABLE, f"blob {digest} is damaged", "nothing was backed up; check the disk")
    return counts, members


def _spool(spool: IO[bytes], pieces: Iterable[bytes]) -> int:
    """Write the pieces to a temporary file; return how many there were."""
    count = 0
    for piece in pieces:
        spool.write(piece)
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


def check(file: str | Path) -> dict[str, Any]:
    """Read the whole backup, compare every table and blob with its digest, and return the manifest."""
    path = Path(file)
    found: dict[str, str] = {}
    manifest: dict[str, Any] | None = None
    try:
        for member, stream in _members(path):
            if member == MANIFEST:
                manifest = json.loads(stream.read())
            else:
                found[member] = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    except FileNotFoundError:
        raise Refusal(Code.NOT_FOUND, f"there is no file {path}", "name the file that `backup` wrote") from None
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:
        raise _damaged(path, str(error)) from None
    if manifest is None:
        raise _damaged(path, "it ends before its manifest")
    if manifest["format"] != FORMAT or manifest["schema"] > latest():
        raise Refusal(Code.MALFORMED, f"{path} was written by a newer deborgen", "install that version, then restore")
    for member, digest_text in manifest["members"].items():
        if found.get(member) != digest_text:
            raise _damaged(path, f"{member} does not match the manifest")
    for member, digest_text in found.items():
        if member.startswith("blobs/") and member != f"blobs/{digest_text}":
            raise _damaged(path, f"{member} does not match its digest")
    return manifest


def _damaged(path: Path, why: str) -> Refusal:
    return Refusal(Code.MALFORMED, f"{path} is not a valid backup: {why}", "use another copy; nothing was changed")


def _members(file: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(file, "r:gz") as archive:
        for info in archive:
            stream = archive.extractfile(info)
            if stream is not None:
                yield info.name, stream


def restore(ctx: Context, file: str | Path) -> dict[str, int]:
    """Check a backup and restore it into an empty coordinator: the blobs first, then all rows in one transaction.

    Returns the rows per table.
    """
    manifest = check(file)
    if not ctx.store.read(dump.is_empty):
        raise Refusal(
            Code.INVALID_TRANSITION, "this coordinator already has data", "restore into an empty data directory"
        )
    for member, stream in _members(file):
        if member.startswith("blobs/"):
            ctx.blobs.put(member.removeprefix("blobs/"), iter(partial(stream.read, PIECE), b""), lambda size: None)
    ctx.store.write(lambda tx: _load(tx, file))
    return dict(manifest["rows"])


def _load(tx: Tx, file: str | Path) -> None:
    dump.clear(tx.connection)
    for member, stream in _members(file):
        if member.startswith("tables/"):
            dump.rows_in(tx.connection, Path(member).stem, stream)
    dump.reset_counters(tx.connection)
