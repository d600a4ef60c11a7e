"""The few things that durability asks of a disk, in one place: a test may put a failing or forgetful one there."""

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
        """What was written to the file before this call survives a loss of power after it."""
        _sync(fd, getattr(os, "fdatasync", os.fsync))

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(fd, os.fsync)
        finally:
            os.close(fd)

    def replace(self, path: Path, data: bytes) -> None:
        """The file has the old content or the new one, never half of it, and the new one once this returns."""
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
        """Bytes that this user may still write there."""
        return psutil.disk_usage(str(folder)).free

    def set_aside(self, fd: int, size: int) -> None:
        """Take this much of the disk for an empty file."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            self.append(fd, bytes(size))


def _sync(fd: int, call: Callable[[int], None]) -> None:
    """On macOS these calls leave the bytes in the drive's own memory, and only F_FULLFSYNC does not."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        call(fd)
    else:
        fcntl.fcntl(fd, full)
