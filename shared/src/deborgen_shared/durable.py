"""Makes written bytes survive a power loss, and reserves disk space."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import BinaryIO, Protocol

#: A file system that does not support F_FULLFSYNC, such as a network share, answers with one of these.
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY})
#: Space is reserved in pieces of this many bytes where the system cannot reserve it in one call.
PIECE = 1 << 20


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def sync_file(file: HasFileno | int) -> None:
    """Everything written to the file before this call survives a power loss after it.

    On macOS a plain fsync leaves the bytes in the drive's cache; only F_FULLFSYNC flushes them.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(file, full)
            return
        except OSError as problem:
            if problem.errno not in UNSUPPORTED:
                raise
    os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Files that were created, renamed or removed in the folder before this call stay that way after a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def set_aside(file: BinaryIO, size: int) -> None:
    """Reserve this much disk space for a file that is still empty."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, PIECE):
        file.write(bytes(min(PIECE, size - start)))
