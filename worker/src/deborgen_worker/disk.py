"""The few disk operations that durability needs. A test may replace them with a disk that fails or forgets."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import psutil


class Disk:
    """The real disk."""

    def append(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        """Make everything written to the file so far survive a power cut."""
        _sync(fd, getattr(os, "fdatasync", os.fsync))

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(fd, os.fsync)
        finally:
            os.close(fd)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace the file's content atomically. Once this returns, the new content is durable."""
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self.append(fd, data)
            self.sync(fd)
        finally:
            os.close(fd)
        temporary.rename(path)
        self.sync_folder(path.parent)

    def free(self, folder: Path) -> int:
        """How many bytes this user may still write to the folder's disk."""
        return psutil.disk_usage(str(folder)).free

    def reserve(self, fd: int, size: int) -> None:
        """Reserve this many bytes of disk for an empty file."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            self.append(fd, bytes(size))


def _sync(fd: int, call: Callable[[int], None]) -> None:
    """Flush a file. On macOS only F_FULLFSYNC reaches the disk; the other calls leave bytes in the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        call(fd)
    else:
        fcntl.fcntl(fd, full)
