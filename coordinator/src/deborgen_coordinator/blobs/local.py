"""Blobs in a local directory: `ab/abcdef…` when complete, `uploads/` while they arrive, `locks/` for their locks.

Every blob is stored in the same way: temporary file, fsync, digest, rename, fsync of the folder. Memory use does not
depend on the size. Locks are `flock`s, so they work between processes and end with them.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deborgen_coordinator.blobs import (
    Busy,
    Commit,
    DigestMismatch,
    NoSpace,
    OffsetMismatch,
    StoreUnavailable,
    Unfinished,
)
from deborgen_coordinator.blobs.hash_states import CHUNK_BYTES, HashStates
from deborgen_shared import contract
from deborgen_shared.durable import sync_file, sync_folder
from deborgen_shared.states import StoreKind

if TYPE_CHECKING:
    from deborgen_coordinator.blobs.bucket import Bucket

TEMPORARY = ".tmp"
DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LocalBlobs:
    """A `BlobStore` in one directory, which several processes may share."""

    kind = StoreKind.LOCAL
    trouble = ""
    bucket: Bucket | None = None
    part_size = 0

    def __init__(self, root: Path, wait_for_upload: float = 5.0) -> None:
        self._root = root
        self._uploads = root / "uploads"
        self._locks = root / "locks"
        self._wait = wait_for_upload
        self._hash_states = HashStates()
        for folder in (self._uploads, self._locks):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def size(self, digest: str, upload: str = "") -> int | None:
        try:
            return self._path(digest).stat().st_size
        except FileNotFoundError:
            return None

    def uri(self, digest: str, upload: str) -> str:
        return contract.GET_BLOB.url(sha256=digest)

    def redirect(self, digest: str, upload: str, name: str) -> str:
        return ""

    def completing(self, upload: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def all(self) -> Iterator[str]:
        """The digests of the complete blobs in the folder."""
        for folder in sorted(self._root.glob("[0-9a-f][0-9a-f]")):
            yield from sorted(path.name for path in folder.iterdir())

    def offset(self, digest: str) -> int:
        try:
            return self._part(digest).stat().st_size
        except FileNotFoundError:
            return 0

    def for_owner(self, owner: str) -> LocalBlobs:
        theirs = copy.copy(self)
        theirs._uploads = self._uploads / owner
        return theirs

    def unfinished(self) -> list[Unfinished]:
        found, now = [], time.time()
        for path in self._uploads.glob("*.part"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found.append(Unfinished(path.stem, stat.st_size, now - stat.st_mtime))
        return sorted(found, key=lambda each: -each.age)

    def discard(self, digest: str) -> None:
        _remove_unless_locked(self._part(digest))

    def put(self, digest: str, chunks: Iterable[bytes], commit: Commit) -> int:
        part = self._open_part(digest, wait=0)
        resumable = part is not None
        file, path = (part, self._part(digest)) if part is not None else self._temporary()
        with file:
            file.truncate(0)
            hasher = hashlib.sha256()
            self._write(file, path, hasher, chunks, keep=resumable)
            return self._finish(file, path, hasher.hexdigest(), digest, commit)

    def append(
        self, digest: str, offset: int, chunks: Iterable[bytes], total: int | None, commit: Commit
    ) -> tuple[int, bool]:
        file = self._open_part(digest, self._wait)
        if file is None:
            raise Busy
        with file:
            size = os.fstat(file.fileno()).st_size
            if size != offset:
                if size == 0:
                    self._part(digest).unlink(missing_ok=True)
                raise OffsetMismatch(size)
            hasher = self._hash_states.take(digest, file)
            part = self._part(digest)
            self._write(file, part, hasher, chunks, keep=True)
            size = file.tell()
            if total is not None and size < total:
                self._hash_states.keep(digest, file, hasher)
                return size, False
            return self._finish(file, part, hasher.hexdigest(), digest, commit), True

    def store(self, chunks: Iterable[bytes], commit: Callable[[str, int, str], None]) -> tuple[str, int]:
        file, path = self._temporary()
        with file:
            hasher = hashlib.sha256()
            self._write(file, path, hasher, chunks, keep=False)
            digest = hasher.hexdigest()
            return digest, self._finish(file, path, digest, digest, partial(commit, digest))

    def open_range(self, digest: str, start: int, end: int, upload: str = "") -> Iterator[bytes]:
        return _pieces(self.open(digest), start, end)

    def open(self, digest: str) -> FileIO:
        """The file of a blob, opened for reading."""
        return FileIO(self._path(digest))

    @contextlib.contextmanager
    def locked(self, digest: str) -> Iterator[None]:
        with (self._locks / digest[:2]).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def delete(self, digest: str) -> None:
        self._path(digest).unlink(missing_ok=True)

    def remove_orphans(self, older_than: float) -> int:
        limit, removed = time.time() - older_than, 0
        for path in list(self._uploads.rglob("*.*")):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path.stat().st_mtime <= limit:
                    removed += _remove_unless_locked(path)
        return removed

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest

    def _part(self, digest: str) -> Path:
        return self._uploads / f"{digest}.part"

    def _temporary(self) -> tuple[FileIO, Path]:
        path = self._uploads / f"{secrets.token_hex(16)}{TEMPORARY}"
        with _translated_disk_full():
            file = FileIO(path, "x+")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file, path

    def _open_part(self, digest: str, wait: float) -> FileIO | None:
        """Open and lock the file of this blob's upload, or create it. Returns None if another upload holds the lock."""
        path, deadline = self._part(digest), time.monotonic() + wait
        self._uploads.mkdir(exist_ok=True, mode=0o700)
        while True:
            with _translated_disk_full():
                file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.02)
                continue
            # If the file was renamed or removed between open and lock, try again with the new one.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(file.fileno()).st_ino:  # noqa: PTH116
                    return file
            file.close()

    def _write(self, file: FileIO, path: Path, hasher: Any, chunks: Iterable[bytes], keep: bool) -> None:
        """Append the chunks. An interrupted upload is kept if it can be resumed, and removed otherwise."""
        try:
            for chunk in chunks:
                left = memoryview(chunk)
                while left:
                    with _translated_disk_full():
                        left = left[file.write(left) :]
                hasher.update(chunk)
        except BaseException as problem:
            if not (keep and _worth_keeping(file, problem)):
                path.unlink(missing_ok=True)
            raise

    def _finish(self, file: FileIO, path: Path, found: str, digest: str, commit: Commit) -> int:
        """Make a written file the blob `digest`, and return its size. `found` is the digest of the file's bytes."""
        if found != digest:
            path.unlink(missing_ok=True)
            raise DigestMismatch(found)
        try:
            with _translated_disk_full():
                return self._keep(file, path, digest, commit)
        except NoSpace:
            path.unlink(missing_ok=True)
            raise
        except StoreUnavailable:
            if path.suffix == TEMPORARY:  # nobody can resume it
                path.unlink(missing_ok=True)
            raise

    def _keep(self, file: FileIO, path: Path, digest: str, commit: Commit) -> int:
        """Put a verified file where blobs are, durably, and commit it; return its size."""
        size, home = file.tell(), self._path(digest)
        sync_file(file)
        if not home.parent.exists():
            home.parent.mkdir(exist_ok=True, mode=0o700)
            sync_folder(self._root)
        with self.locked(digest):
            path.rename(home)
            sync_folder(home.parent)
            commit(size, "")
        return size


@contextlib.contextmanager
def _translated_disk_full() -> Iterator[None]:
    """Turn the operating system's "no space left" into NoSpace."""
    try:
        yield
    except OSError as problem:
        if problem.errno in DISK_FULL_ERRORS:
            raise NoSpace(str(problem)) from problem
        raise


def _remove_unless_locked(path: Path) -> bool:
    """Remove a file of an interrupted upload; False if it is gone, or being written."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return True
    return False


def _worth_keeping(file: FileIO, problem: BaseException) -> bool:
    """Whether the received bytes are kept for a later try. On a full disk they would keep the disk full."""
    return not isinstance(problem, NoSpace) and os.fstat(file.fileno()).st_size > 0


def _pieces(file: FileIO, start: int, end: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        left = end - start
        while left > 0 and (piece := file.read(min(CHUNK_BYTES, left))):
            left -= len(piece)
            yield piece
