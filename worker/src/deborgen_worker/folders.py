"""The folders of attempts. Clean folders are reused, because making and removing them is most of a short job's cost.

A folder is reused only if the last attempt added, removed and replaced nothing in it. Otherwise it is removed with
everything in it. The two files that every attempt has, its parameters and its output, are also reused if possible: on a
file system that has just removed many files, making new ones becomes slow.

If plain processes have users of their own, each folder has one, who owns what the job may write. The user belongs to
the folder as long as it exists, so two jobs never share one, and a later session finds the user where it was.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import stat
import subprocess
import threading
from pathlib import Path

from deborgen_shared.jobfile import paths

#: Keep at most this many clean folders.
MAX_SPARE = 128
WORK, OWN, TEMPORARY = "work", paths.OWN, "tmp"
PARAMS, EVENTS, PROGRESS, ASKED = "params.json", "events.jsonl", "progress", "checkpoint"
#: The folder of an attempt's checkpoints that are being uploaded, beside its workspace.
SAVED = "checkpoint"
#: The folder of all folders of attempts, in the state directory.
ATTEMPTS = "attempts"
#: Where a job in a container sees its folder `work`.
IN_CONTAINER = "/job"
#: Where it sees deborgen's own folder in the workspace, with its result, its progress and its events.
OWN_IN_CONTAINER = "/deborgen"
#: The file with the program's output, which exists only once the program was started. A reused folder may have an empty
#: file with the second name, which gets the first name at the start.
OUTPUT, BLANK = "output", "blank"
#: Open files and folders of a job with these flags: never through a link.
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folders:
    """Makes and recycles the folders below `root`. Clean folders wait in `spare`, on the same file system.

    With `users`, folders are made for plain processes that have users of their own.
    """

    def __init__(self, root: Path, spare: Path, users: range = range(0)) -> None:
        self.root, self._spare, self._users = root, spare, users
        self._user_lock, self._last_user = threading.Lock(), secrets.randbelow(max(1, len(users)))
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        root.chmod(0o711 if users else 0o700)
        shutil.rmtree(spare, ignore_errors=True)
        spare.mkdir(mode=0o700)
        self._free: list[str] = []
        self._names = itertools.count()

    def of(self, attempt: str) -> Path:
        return self.root / attempt.replace("/", "-")

    def make(self, folder: Path, container: bool = False) -> None:
        """Make a fresh folder with an empty workspace. Leftovers of an interrupted try are removed first.

        The folder of a container is not reused, and has no user of its own.
        """
        try:
            try:
                spares: list[str] = [] if container else self._free
                os.rename(spares.pop(), folder)  # noqa: PTH104 - a string is quicker, and this runs for every short job
            except IndexError:
                folder.mkdir(mode=0o700)
                (folder / WORK / OWN).mkdir(parents=True)
                (folder / TEMPORARY).mkdir()
                if self._users and not container:
                    self._give_to_user(folder)
        except OSError:
            if not folder.exists() or not remove(folder):
                raise
            self.make(folder, container)

    def _give_to_user(self, folder: Path) -> None:
        """Give the folders in which the job may write to a user whom no other folder has."""
        with self._user_lock:
            taken = {owner_of(each / WORK) for root in (self.root, self._spare) for each in root.iterdir()}
            for _ in self._users:
                self._last_user = (self._last_user + 1) % len(self._users)
                if (user := self._users[self._last_user]) not in taken:
                    break
            else:
                raise OSError("all users for plain processes are taken; remove the workspaces that were kept")
        for each in (folder / WORK / OWN, folder / WORK, folder / TEMPORARY):
            os.chown(each, user, user, follow_symlinks=False)
            each.chmod(0o700)
        folder.chmod(0o711)

    def recycle(self, folder: Path) -> bool:
        """Keep the folder for a later attempt if it is clean. False if it must be removed, which may be slow."""
        path = str(folder)
        if not self._is_clean(path):
            return False
        spare = f"{self._spare}/{next(self._names)}"
        try:
            os.rename(path, spare)  # noqa: PTH104
        except OSError:
            return False
        self._free.append(spare)
        return True

    def _is_clean(self, path: str) -> bool:
        """Whether the folder holds only what the worker put there. Output and parameters are removed or made blank."""
        if len(self._free) >= MAX_SPARE:
            return False
        try:
            if _names(path) - {OUTPUT, BLANK} != {WORK, TEMPORARY} or _names(f"{path}/{TEMPORARY}"):
                return False
            if _names(f"{path}/{WORK}") != {OWN} or _names(f"{path}/{WORK}/{OWN}") != {PARAMS}:
                return False
            owner, mode = owner_of(f"{path}/{WORK}"), 0o40700 if self._users else 0o40755
            for each in (WORK, TEMPORARY, f"{WORK}/{OWN}"):
                found = os.stat(f"{path}/{each}", follow_symlinks=False)  # noqa: PTH116
                if (found.st_mode, found.st_uid) != (mode, owner):
                    return False
            if self._users and owner not in self._users:
                return False
            params, output = f"{path}/{WORK}/{OWN}/{PARAMS}", f"{path}/{OUTPUT}"
            if _size_as_made(params, 0o644, os.geteuid()) is None:
                os.unlink(params)  # noqa: PTH108
            with contextlib.suppress(FileNotFoundError):
                if _size_as_made(output, 0o600, owner) == 0:
                    os.rename(output, f"{path}/{BLANK}")  # noqa: PTH104
                else:
                    os.unlink(output)  # noqa: PTH108
        except OSError:
            return False
        return True


def _names(path: str) -> set[str]:
    """The first few names in a folder. A folder with more names is not clean, and may have millions."""
    with os.scandir(path) as found:
        return {each.name for each in itertools.islice(found, 8)}


def _size_as_made(path: str, mode: int, owner: int) -> int | None:
    """The size of a file, if apart from its content it is still as we made it: regular, and with one name."""
    found = os.lstat(path)
    as_made = found.st_mode == stat.S_IFREG | mode and found.st_nlink == 1 and found.st_uid == owner
    return found.st_size if as_made else None


def owner_of(path: str | Path) -> int:
    """The user who owns a file or folder; -1 if there is none."""
    try:
        return os.stat(path, follow_symlinks=False).st_uid  # noqa: PTH116
    except OSError:
        return -1


def may_read_for(owner: int, file: os.stat_result) -> bool:
    """Whether this file may be read for the owner of a workspace. Unless that is us, it must be the owner's own."""
    return owner in {os.geteuid(), file.st_uid}


def open_folder(root: Path, path: str) -> int:
    """Open a folder below the root. A link anywhere in the path is an error."""
    folder = os.open(root, NO_LINK | os.O_DIRECTORY)
    for part in path.split("/") if path else []:
        try:
            following = os.open(part, NO_LINK | os.O_DIRECTORY, dir_fd=folder)
        finally:
            os.close(folder)
        folder = following
    return folder


def remove(folder: Path) -> bool:
    """Remove a folder and everything in it, whatever its modes. False if something could not be removed."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    # Whatever is left is nested too deep for Python, or in folders whose modes the job has changed. A rootless
    # container may also leave files of other users, which can be removed only in its user namespace.
    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"], ["podman", "unshare", "rm", "-rf"]):
        if folder.exists():
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run([*command, folder], timeout=120, check=False, capture_output=True)
    return not folder.exists()
