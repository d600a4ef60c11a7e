"""Files that are put into a shared folder or taken from it.

Jobs of other people have written there before. So nothing is read or written through a link in such a folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from deborgen_worker.folders import NO_LINK, may_read_for, open_folder


def put(source: Path, root: Path, path: str, mode: int) -> None:
    """Put a copy of a file into a shared folder, in one step, in place of what is there. A link in the path is an
    error. The file belongs to whoever owns the folder."""
    owner = root.stat()
    parent, _, name = path.rpartition("/")
    with _made(root, parent, owner) as folder:
        new = f".{secrets.token_hex(8)}.deborgen"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as writing, source.open("rb") as reading:
                shutil.copyfileobj(reading, writing)
                os.fchmod(fd, mode & 0o777)
                if os.geteuid() == 0:
                    os.fchown(fd, owner.st_uid, owner.st_gid)
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=folder)
            raise


@contextlib.contextmanager
def _made(root: Path, path: str, owner: os.stat_result) -> Iterator[int]:
    """A folder below the root, open. What is missing of it is made."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the owner's path may lead through a link
    try:
        for part in path.split("/") if path else []:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
                if os.geteuid() == 0:
                    os.chown(part, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)
            inner = os.open(part, NO_LINK | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def take_copy(root: Path, path: str, target: Path, owners: Collection[int]) -> None:
    """Copy a file of a shared folder. A link in the path is an error, and so is anything but a regular file of one of
    these owners; if the worker itself is among them, everybody's files may be taken."""
    parent, _, name = path.rpartition("/")
    folder = open_folder(Path(os.path.realpath(root)), parent)
    try:
        fd = os.open(name, NO_LINK | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(fd, "rb") as reading:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not any(may_read_for(owner, found) for owner in owners):
            raise OSError(f"{path} is not a regular file of the job")
        with target.open("wb") as writing:
            shutil.copyfileobj(reading, writing)
