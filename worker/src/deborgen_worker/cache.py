"""Keep input files by digest for later jobs, within a disk budget. The least recently used files are evicted first."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

#: Copy at most this many bytes per system call.
COPY_BYTES = 1 << 30

Fetch = Callable[[str, Path], None]


class BlobCache:
    """A folder of complete blobs. Missing blobs are fetched, each by one thread at a time."""

    def __init__(self, folder: Path, budget: int, fetch: Fetch) -> None:
        self._folder, self._budget, self._fetch = folder, budget, fetch
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}

    def copy(self, sha256: str, target: Path, mode: int) -> None:
        """Copy the blob to the target. Each job gets its own copy, so that it cannot change the input of another."""
        with self._lock:
            busy = self._busy.setdefault(sha256, threading.Lock())
        with busy:
            source = self._folder / sha256
            if not source.exists():
                self._fetch(sha256, source)
                self.evict()
            os.utime(source)
            _copy(source, target)
            target.chmod(mode & 0o777)

    def evict(self) -> None:
        """Remove the least recently used blobs until the rest is within the budget, but no blob that is in use."""
        with self._lock:
            found = []
            for each in self._folder.iterdir():
                with contextlib.suppress(OSError):
                    info = each.stat()
                    found.append((info.st_mtime, info.st_size, each))
            total = sum(size for _, size, _ in found)
            for _, size, each in sorted(found):
                busy = self._busy.get(each.name.removesuffix(".part"))
                if total > self._budget and not (busy and busy.locked()):
                    each.unlink(missing_ok=True)
                    total -= size


def _copy(source: Path, target: Path) -> None:
    """Copy a file. Where the file system can share bytes between files, no bytes are copied."""
    if not hasattr(os, "copy_file_range"):
        shutil.copyfile(source, target)
        return
    with source.open("rb") as reading, target.open("wb") as writing:
        while os.copy_file_range(reading.fileno(), writing.fileno(), COPY_BYTES):
            pass
