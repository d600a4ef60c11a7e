"""Move all blobs of a pool into its object store, or back into the data folder, while the pool runs.

Each blob is copied, its digest is checked at the new place, its row is changed, and only then the old copy is removed.
So every blob can be read at any moment, and a move that is stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import StoreKind

from ...blobs import DigestMismatch
from ...blobs.bucket import Bucket
from ...blobs.local import LocalBlobs
from ...storage import blobs as rows
from ...storage import runs, uploads
from .. import artifact_store, direct_uploads
from ..context import Context

#: Move this many blobs at the same time.
PARALLEL = 4
#: Read this many rows at once.
PAGE = 200


@dataclass
class MoveReport:
    """How many blobs were moved, and which ones could not be because their bytes are wrong or missing."""

    moved: int = 0
    damaged: list[str] = field(default_factory=list)


class Mover:
    """Moves blobs in one direction. `say` is called after each page with the report so far."""

    def __init__(self, ctx: Context, bucket: Bucket, say: Callable[[MoveReport], None] = lambda report: None) -> None:
        self._ctx, self._bucket, self._say = ctx, bucket, say
        self._local = LocalBlobs(ctx.settings.blob_dir)
        self._lock = threading.Lock()
        self.report = MoveReport()

    def run(self, to: StoreKind) -> MoveReport:
        one = self._to_store if to is StoreKind.S3 else self._to_folder
        with ThreadPoolExecutor(PARALLEL) as pool:
            for page in self._pages(remote=to is StoreKind.LOCAL):
                for moved, digest in pool.map(lambda row: one(*row), page):
                    self._note(moved, digest)
                self._say(self.report)
        self._remove_leftovers()
        while direct_uploads.remove_condemned(self._ctx, self._bucket):
            pass
        if not self.report.damaged:
            while self._ctx.store.write(partial(runs.set_artifact_store, store=to.value)):
                pass
        return self.report

    def _pages(self, *, remote: bool) -> Iterator[list[tuple[str, int, str]]]:
        digest = ""
        while page := self._ctx.store.read(partial(rows.list_after, digest=digest, remote=remote, most=PAGE)):
            yield page
            digest = page[-1][0]

    def _note(self, moved: bool | None, digest: str) -> None:
        """Count a blob: whether it was moved, or None if its bytes are wrong."""
        with self._lock:
            if moved is None:
                self.report.damaged.append(digest)
            else:
                self.report.moved += moved

    def _to_store(self, digest: str, size: int, _: str) -> tuple[bool | None, str]:
        try:
            file = self._local.open(digest)
        except FileNotFoundError:
            found = self._ctx.store.read(partial(rows.find, digest=digest))
            return (None if found is not None and not found.upload else False), digest
        with file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                return None, digest
            upload = direct_uploads.announce(self._ctx.store, self._ctx.clock, "", digest, size)
            self._bucket.put(digest, upload, file, size, self._ctx.blobs.part_size)
        if not self._bucket.holds(digest, upload, size):
            return None, digest
        moved = self._ctx.store.write(partial(rows.move, digest=digest, source="", target=upload))
        self._remove_local(digest)
        return moved, digest

    def _to_folder(self, digest: str, size: int, upload: str) -> tuple[bool | None, str]:
        moved: list[bool] = []

        def commit(_size: int, _upload: str) -> None:
            moved.append(self._ctx.store.write(partial(rows.move, digest=digest, source=upload, target="")))

        try:
            self._local.put(digest, self._bucket.open_range(digest, upload, 0, size), commit)
        except (DigestMismatch, FileNotFoundError):
            found = self._ctx.store.read(partial(rows.find, digest=digest))
            return (None if found is not None and found.upload == upload else False), digest
        self._remove_local(digest)  # it is not needed if the blob was removed meanwhile
        return moved == [True], digest

    def _remove_local(self, digest: str) -> None:
        """Remove the copy in the data folder, unless the row says that the blob is there."""
        with self._local.locked(digest):
            found = self._ctx.store.read(partial(rows.find, digest=digest))
            if found is None or found.upload:
                self._local.delete(digest)

    def _remove_leftovers(self) -> None:
        """Remove the copies that a move left behind when it was stopped between two steps."""
        for digest in self._local.all():
            found = self._ctx.store.read(partial(rows.find, digest=digest))
            if found is not None and found.upload:
                self._remove_local(digest)


def move(ctx: Context, to: StoreKind, say: Callable[[MoveReport], None] = lambda report: None) -> MoveReport:
    """Move all blobs. The coordinators of the pool must know the object store already."""
    artifact_store.require(ctx)
    bucket, used = ctx.blobs.bucket, ctx.store.read(uploads.used_store)
    if bucket is None:
        raise Refusal(Code.MALFORMED, "no object store is named", "add --artifact-store s3://BUCKET/PREFIX")
    if to is StoreKind.S3 and used != artifact_store.address(ctx):
        message = "the coordinator does not use this object store yet, and could not read the blobs there"
        hint = f"restart it with --artifact-store {artifact_store.address(ctx)}, then run this command again"
        raise Refusal(Code.INVALID_TRANSITION, message, hint)
    return Mover(ctx, bucket, say).run(to)
