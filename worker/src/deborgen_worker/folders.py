"""The folders of attempts. Clean ones are reused: making and removing folders is most of the cost of a short job.

A folder is reused only if the last attempt left it exactly as it got it: nothing was added, removed or replaced.
Otherwise it is removed with everything in it. The two files that every attempt has, its parameters and its output, are
reused too where possible: a file system that has just removed many files takes ever longer to make a new one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import subprocess
from pathlib import Path

#: Keep at most this many clean folders.
MAX_SPARE = 128
WORK, OWN, TEMPORARY, PARAMS, EVENTS = "work", ".deborgen", "tmp", "params.json", "events.jsonl"
#: Where a job in a container sees its folder `work`.
IN_CONTAINER = "/job"
#: The file with the program's output, which exists only once the program was started. A reused folder may
#: have an empty file under the second name, which is renamed to the first at the start.
OUTPUT, BLANK = "output", "blank"
#: Open files and folders of a job with these flags: never through a link.
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folders:
    """Makes, recycles and removes the folders below `root`. Clean ones wait in `spare`, on the same file system."""

    def __init__(self, root: Path, spare: Path) -> None:
        self.root, self._spare = root, spare
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(spare, ignore_errors=True)
        spare.mkdir(mode=0o700)
        self._free: list[str] = []
        self._names = itertools.count()

    def of(self, attempt: str) -> Path:
        return self.root / attempt.replace("/", "-")

    def make(self, folder: Path) -> None:
        """Make a fresh folder with an empty workspace. Leftovers of an interrupted try are removed first."""
        try:
            try:
                spare = self._free.pop()
                os.rename(spare, folder)  # noqa: PTH104 - a string is quicker, and this runs for every short job
            except IndexError:
                folder.mkdir(mode=0o700)
                (folder / WORK / OWN).mkdir(parents=True)
                (folder / TEMPORARY).mkdir()
        except OSError:
            if not folder.exists() or not remove(folder):
                raise
            self.make(folder)

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
        """Whether it holds only what the worker put there. Files that the next attempt must not see are removed."""
        if len(self._free) >= MAX_SPARE:
            return False
        try:
            if _names(path) - {OUTPUT, BLANK} != {WORK, TEMPORARY} or _names(f"{path}/{TEMPORARY}"):
                return False
            if _names(f"{path}/{WORK}") != {OWN} or _names(f"{path}/{WORK}/{OWN}") != {PARAMS}:
                return False
            for each in (WORK, TEMPORARY, f"{WORK}/{OWN}"):
                if os.stat(f"{path}/{each}", follow_symlinks=False).st_mode != 0o40755:  # noqa: PTH116
                    return False
            params, output = f"{path}/{WORK}/{OWN}/{PARAMS}", f"{path}/{OUTPUT}"
            if _own_file(params, 0o644) is None:
                os.unlink(params)  # noqa: PTH108
            with contextlib.suppress(FileNotFoundError):
                if _own_file(output, 0o600) == 0:
                    os.rename(output, f"{path}/{BLANK}")  # noqa: PTH104
                else:
                    os.unlink(output)  # noqa: PTH108
        except OSError:
            return False
        return True


def _names(path: str) -> set[str]:
    """The first few names in a folder. A folder with more is not clean, and may have millions."""
    with os.scandir(path) as found:
        return {each.name for each in itertools.islice(found, 8)}


def _own_file(path: str, mode: int) -> int | None:
    """The size of a file that still is as we made it, apart from its content: regular, ours, and with one name."""
    found = os.lstat(path)
    as_made = found.st_mode == stat.S_IFREG | mode and found.st_nlink == 1 and found.st_uid == os.geteuid()
    return found.st_size if as_made else None


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
    # The rest is nested deeper than Python can reach, or in folders whose modes the job has changed. A rootless
    # container may also leave files of other users, which can be removed only in its user namespace.
    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"], ["podman", "unshare", "rm", "-rf"]):
        if folder.exists():
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run([*command, folder], timeout=120, check=False, capture_output=True)
    return not folder.exists()
