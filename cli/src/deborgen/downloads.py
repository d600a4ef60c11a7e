"""Artifacts to a folder: several at once, resumable, every digest checked, and never a byte outside the folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deborgen.connection import Connection
from deborgen.errors import DeborgenError, Unreachable
from deborgen.transfers import Tries, all_at_once
from deborgen_shared import contract
from deborgen_shared.client import blobs, transport
from deborgen_shared.client.blobs import Seen
from deborgen_shared.jobfile.paths import check_path


class UnsafeTarget(DeborgenError):
    """An artifact that would be written outside the folder."""


class WrongDigest(DeborgenError):
    """The bytes that arrived are not the bytes that the job made."""


@dataclass(frozen=True)
class Wanted:
    """One artifact, and its path below the target folder."""

    job: str
    path: str
    sha256: str
    size: int
    target: str


def pull(connection: Connection, wanted: Iterable[Wanted], into: Path, seen: Seen = blobs.ignore) -> list[Path]:
    """Fetch all of them. A file that is there already, whole and right, is not fetched again."""
    items = list(wanted)
    for item in items:
        if wrong := check_path(item.target):
            raise UnsafeTarget(f"the artifact {item.path!r} of job {item.job} is refused: its path {wrong}")
    into.mkdir(parents=True, exist_ok=True)
    return all_at_once(items, lambda item, told: _pull_one(connection, item, into, told), seen)


def _pull_one(connection: Connection, item: Wanted, into: Path, seen: Seen) -> Path:
    *folders, name = item.target.split("/")
    # The folder is held open, level by level, and never through a link: what is swapped meanwhile leads nowhere.
    folder = _open_folder(into, folders)
    try:
        if _digest_at(folder, name, item.size) == item.sha256:
            seen(item.size)
            return into / item.target
        shown = name.encode()[:80].decode(errors="ignore")  # a name may have 255 bytes
        part = f".{shown}.{item.sha256[:16]}.part"
        tries, told = Tries(), blobs.Told(seen)
        while True:
            before = told.position
            try:
                _fetch(connection, item, folder, part, told)
                break
            except transport.Refused as refused:
                raise connection.explained(refused) from None
            except transport.Unreachable as trouble:
                if not tries.again(told.position > before, trouble.retry_after):
                    text = f"{item.path} of job {item.job} could not be fetched whole: {trouble}"
                    raise Unreachable(text, _AGAIN) from None
        if _digest_at(folder, part, item.size) != item.sha256:
            os.unlink(part, dir_fd=folder)
            raise WrongDigest(f"{item.path} of job {item.job} arrived with another digest; it was not kept", _AGAIN)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        return into / item.target
    finally:
        os.close(folder)


_AGAIN = "the same command goes on where it stopped"


def _open_folder(into: Path, folders: list[str]) -> int:
    descriptor = os.open(into, os.O_RDONLY | os.O_DIRECTORY)
    for name in folders:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=descriptor)
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as why:
            raise UnsafeTarget(f"{into / Path(*folders)} is not a plain folder: {why.strerror}", _MOVE) from None
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


_MOVE = "remove the link or file that is in the way, or pull into another folder"


def _digest_at(folder: int, name: str, size: int) -> str:
    """The digest of a regular file of this size in the folder, else an empty string."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return ""
        total = hashlib.sha256()
        while chunk := file.read(1 << 20):
            total.update(chunk)
        return total.hexdigest()


def _fetch(connection: Connection, item: Wanted, folder: int, part: str, told: blobs.Told) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(part, flags, 0o644, dir_fd=folder), "r+b", buffering=0) as file:
        call = contract.GET_ARTIFACT
        blobs.download(connection.transport, call, file, item.size, told, job=item.job, path=item.path)
