"""Input files kept by their digest for the next job, within a disk budget, the least recently used out first."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

#: The most that one call is asked to copy.
COPY_BYTES = 1 << 30

Fetch = Callable[[str, Path], None]


class BlobCache:
    """A folder of blobs. A blob that is there is whole; `fetch` is asked for the others, each once at a time."""

    def __init__(self, folder: Path, budget: int, fetch: Fetch) -> None:
        self._folder, self._budget, self._fetch = folder, budget, fetch
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}

    def copy(self, sha256: str, target: Path, mode: int) -> None:
        """Lay a copy of the blob at the target: a copy, so that no job can change what the next one gets."""
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
        """Remove what was not used for longest until the rest is within the budget; never what is in use now."""
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
    """Without a copy of the bytes where the file system can share them between two files."""
    if not hasattr(os, "copy_file_range"):
        shutil.copyfile(source, target)
        return
    with source.open("rb") as reading, target.open("wb") as writing:
        while os.copy_file_range(reading.fileno(), writing.fileno(), COPY_BYTES):
            pass
