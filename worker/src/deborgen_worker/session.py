"""Which worker uses a state directory: a lock while it runs, and a note for the owner's commands after its death."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from deborgen_worker.disk import Disk

NOTE = "session.json"


class SessionNote(msgspec.Struct):
    """The newest session of a state directory, how it reached its pool, and its unit if a service manager started
    it."""

    id: str
    name: str
    coordinator: str
    token_file: str
    ca_file: str = ""
    unit: tuple[str, str] | None = None


def lock(state: Path, name: str = "worker.lock") -> int | None:
    """Lock the state directory until the returned file is closed. None if another process has locked it."""
    fd = os.open(state / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def write(state: Path, disk: Disk, session: SessionNote) -> None:
    """Write the note, unless the disk is full: then the worker must still start and deliver its results."""
    with contextlib.suppress(OSError):
        disk.replace(state / NOTE, msgspec.json.encode(session))


def read(state: Path) -> SessionNote | None:
    try:
        return msgspec.json.decode((state / NOTE).read_bytes(), type=SessionNote)
    except (OSError, msgspec.MsgspecError):
        return None
