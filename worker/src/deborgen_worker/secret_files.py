"""The secrets of unfinished attempts, in files that are only in memory, for the next session of this worker.

They are never in the journal or on a disk. Where the system has no file system in memory, a restart of the worker
forgets them, and the log of an attempt that goes on is withheld.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
import psutil

#: Where a file system in memory may be, for root and for other users.
PLACES = ("XDG_RUNTIME_DIR", "/dev/shm", "/run")  # noqa: S108 - `_make_folder` refuses the folder of another user
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def folder_in_memory(state: Path) -> Path | None:
    """A folder for this worker that is only in memory; None if there is no such place."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    name = f"deborgen-{os.geteuid()}-{hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:16]}"
    for place in PLACES:
        path = Path(place if place.startswith("/") else os.environ.get(place) or "/nonexistent")
        mount = next((str(each) for each in (path, *path.parents) if str(each) in mounts), "")
        if mounts.get(mount) in _IN_MEMORY and os.access(path, os.W_OK):
            return path / name
    return None


class SecretFiles:
    """One file per attempt, with mode 0600, in a folder that only this user may enter."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def write(self, attempt: str, secrets: Mapping[str, str]) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._make_folder(self._folder)
                descriptor = os.open(self._path(attempt), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(msgspec.json.encode(secrets))

    def read(self, attempt: str) -> dict[str, str]:
        """The secrets of an attempt; empty if they are not known any more."""
        if self._folder is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._make_folder(self._folder)
                return msgspec.json.decode(self._path(attempt).read_bytes(), type=dict[str, str])
        return {}

    def remove(self, attempt: str) -> None:
        if self._folder is not None:
            self._path(attempt).unlink(missing_ok=True)

    def keep_only(self, attempts: Collection[str]) -> None:
        """Remove the files of all other attempts."""
        if self._folder is not None and self._folder.is_dir():
            kept = {self._path(attempt) for attempt in attempts}
            for path in set(self._folder.iterdir()) - kept:
                path.unlink(missing_ok=True)

    def _path(self, attempt: str) -> Path:
        assert self._folder is not None
        return self._folder / attempt.replace("/", "-")

    @staticmethod
    def _make_folder(folder: Path) -> None:
        """Create the folder. One that somebody else has created in a place that is open to all is an error."""
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(f"{folder} belongs to somebody else")
