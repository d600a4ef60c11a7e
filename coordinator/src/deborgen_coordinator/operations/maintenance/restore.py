"""Restore a backup. It is checked to its last byte before any of it is used."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from deborgen_shared.errors import Code, Refusal

from ...blobs import NoSpace, StoreUnavailable
from ...storage import blobs as blob_rows
from ...storage import dump, uploads
from ...storage.schema import latest
from ...storage.transactions import Tx
from .. import artifact_store
from ..context import Context
from .backup import FORMAT, MANIFEST

TABLES, BLOBS = "tables/", "blobs/"
#: The table that lists all blobs of the backup.
BLOB_TABLE = f"{TABLES}blob.jsonl"
PIECE = 1 << 20


class Manifest(msgspec.Struct):
    """What a backup holds: the number of rows per table, and the digest of each table's file."""

    format: int
    schema: int
    rows: dict[str, int]
    members: dict[str, str]


class CheckedBackup(NamedTuple):
    """A backup that is complete and undamaged."""

    file: Path
    manifest: Manifest


def check(file: Path) -> CheckedBackup:
    """Read and check the whole backup, without a coordinator and without creating anything.

    Every table must match its digest in the manifest, every blob its own digest, and no blob of the table `blob` may be
    missing.
    """
    manifest: Manifest | None = None
    tables: dict[str, str] = {}
    unseen: dict[str, int] = {}
    try:
        for member, size, stream in _members(file):
            if member == MANIFEST:
                manifest = msgspec.json.decode(stream.read(), type=Manifest)
            elif member.startswith(BLOBS):
                found = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
                if member != f"{BLOBS}{found}" or unseen.pop(found, None) != size:
                    raise _damaged(file, f"{member} does not match its digest, or does not belong to this backup")
            elif member in tables:
                raise _damaged(file, f"it has {member} twice")
            else:
                lines = _HashedLines(stream)
                if member == BLOB_TABLE:
                    unseen = dump.list_blobs(lines)
                tables[member] = lines.digest()
    except FileNotFoundError:
        raise Refusal(Code.NOT_FOUND, f"there is no file {file}", "name the file that `backup` wrote") from None
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, msgspec.DecodeError) as error:
        raise _damaged(file, str(error)) from None
    if manifest is None:
        raise _damaged(file, "it ends before its manifest")
    if manifest.format != FORMAT or manifest.schema > latest():
        raise Refusal(Code.MALFORMED, f"{file} was written by a newer deborgen", "install that version, then restore")
    for member in sorted(tables.keys() | manifest.members.keys()):
        if tables.get(member) != manifest.members.get(member):
            raise _damaged(file, f"{member} does not match the manifest")
    if unseen:
        raise _damaged(file, f"{len(unseen)} of its blobs are missing, for example {min(unseen)}")
    return CheckedBackup(file, manifest)


def restore(ctx: Context, backup: CheckedBackup) -> dict[str, int]:
    """Restore a backup into an empty coordinator: the blobs first, then all rows in one transaction.

    If that fails, the blobs are removed again. Returns the rows per table.
    """
    if not ctx.store.read(dump.is_empty):
        raise Refusal(
            Code.INVALID_TRANSITION, "this coordinator already has data", "restore into an empty data directory"
        )
    added: list[str] = []
    #: The blobs of the object store, each with its upload.
    remote: dict[str, str] = {}

    def note(digest: str, size: int, upload: str) -> None:
        if upload:
            remote[digest] = upload

    try:
        for member, _, stream in _members(backup.file):
            if member.startswith(BLOBS):
                digest = member.removeprefix(BLOBS)
                if ctx.blobs.size(digest) is None:
                    added.append(digest)
                ctx.blobs.put(digest, iter(partial(stream.read, PIECE), b""), partial(note, digest))
        ctx.store.write(lambda tx: _load(tx, backup.file, remote, artifact_store.address(ctx)))
    except BaseException as problem:
        if ctx.store.read(dump.is_empty):
            for digest in added:
                with ctx.blobs.locked(digest):
                    ctx.blobs.delete(digest)
            _remove_remote(ctx, remote)
        if isinstance(problem, NoSpace):
            hint = "nothing was changed; free some space, then restore again"
            raise Refusal(Code.UNAVAILABLE, "the disk is full", hint) from None
        raise
    return backup.manifest.rows


def _remove_remote(ctx: Context, remote: dict[str, str]) -> None:
    """Remove what was put into the object store. What cannot be removed now is removed by a coordinator that uses this
    database."""
    for digest, upload in remote.items():
        with contextlib.suppress(StoreUnavailable):
            if ctx.blobs.bucket is not None:
                ctx.blobs.bucket.delete(digest, upload)


def _damaged(file: Path, why: str) -> Refusal:
    return Refusal(Code.MALFORMED, f"{file} is not a valid backup: {why}", "use another copy; nothing was changed")


class _HashedLines:
    """The lines of a file. `digest` reads the remaining lines, and returns the digest of the whole file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._hasher = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            self._hasher.update(line)
            yield line

    def digest(self) -> str:
        while piece := self._stream.read(PIECE):
            self._hasher.update(piece)
        return self._hasher.hexdigest()


def _members(file: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """The name, the size and the bytes of each member. At the end, the archive has been read to its last byte."""
    with gzip.open(file) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as archive:
        for info in archive:
            stream = archive.extractfile(info)
            if stream is not None:
                yield info.name, info.size, stream
        # gzip checks the file's length and checksum only when it reaches the end.
        while unpacked.read(PIECE):
            pass


def _load(tx: Tx, file: Path, remote: dict[str, str], address: str) -> None:
    dump.remove_initial_rows(tx.connection)
    for member, _, stream in _members(file):
        if member.startswith(TABLES):
            dump.load_rows(tx.connection, Path(member).stem, stream)
    blob_rows.set_uploads(tx, remote)
    uploads.use_store(tx, address)
    dump.reset_counters(tx.connection)
