"""The few things that durability asks of a disk, in one place: a test may put a failing or forgetful one there."""

from __future__ import annotations

import os
from pathlib import Path


class Disk:
    """The real disk."""

    def append(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        """What was written to the file before this call survives a loss of power after it."""
        os.fdatasync(fd)

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
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
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
