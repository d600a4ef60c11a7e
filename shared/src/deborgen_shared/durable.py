"""What is asked of a disk: bytes that survive a loss of power, and space that nobody else can take."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import BinaryIO, Protocol

#: A file system that does not know F_FULLFSYNC, such as one over a network, answers with one of these.
UNKNOWN = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY})
PIECE = 1 << 20


class Open(Protocol):
    def fileno(self) -> int: ...


def sync_file(file: Open | int) -> None:
    """What was written to the file before this call survives a loss of power after it.

    On macOS a plain fsync leaves the bytes in the drive's own memory, and only F_FULLFSYNC does not.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(file, full)
            return
        except OSError as problem:
            if problem.errno not in UNKNOWN:
                raise
    os.fsync(file)


def sync_folder(folder: Path) -> None:
    """The names in the folder, as they are before this call, survive a loss of power after it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def set_aside(file: BinaryIO, size: int) -> None:
    """Take this much of the disk for an empty file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, PIECE):
        file.write(bytes(min(PIECE, size - start)))
