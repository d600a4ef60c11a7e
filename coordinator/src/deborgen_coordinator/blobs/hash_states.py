"""Keeps the hash state of an upload between its parts, so that its blob is read once, not once per part."""

from __future__ import annotations

import hashlib
import os
from io import FileIO
from typing import Any

from deborgen_coordinator.caches import SharedCache

CHUNK_BYTES = 256 * 1024
MAX_HASH_STATES = 256


class HashStates:
    """Hash states by digest.

    A hash state is valid only for the same inode, size and modification time. If another process has written to the
    file since then, the file is read again.
    """

    def __init__(self) -> None:
        self._kept: SharedCache[str, tuple[tuple[int, int, int], Any]] = SharedCache(MAX_HASH_STATES)

    def take(self, digest: str, file: FileIO) -> Any:
        """The hash state of the file's contents. Afterwards the file's position is its end."""
        kept = self._kept.pop(digest)
        if kept is not None and kept[0] == self._mark(file):
            file.seek(0, os.SEEK_END)
            return kept[1]
        hasher = hashlib.sha256()
        while piece := file.read(CHUNK_BYTES):
            hasher.update(piece)
        return hasher

    def keep(self, digest: str, file: FileIO, hasher: Any) -> None:
        self._kept.update({digest: (self._mark(file), hasher)})

    @staticmethod
    def _mark(file: FileIO) -> tuple[int, int, int]:
        found = os.fstat(file.fileno())
        return found.st_ino, found.st_size, found.st_mtime_ns
