"""Blobs to and from the coordinator: several at once, each resumed where a cut line left it.

Uploads send only what the coordinator lacks. Downloads check every digest, and never write a byte outside their folder.
All transfers stop soon when one fails or the person has had enough.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from deborgen.connection import Connection
from deborgen.errors import DeborgenError, Unreachable
from deborgen.files import LocalFile
from deborgen_shared import contract
from deborgen_shared.client import blobs, transport
from deborgen_shared.client.backoff import BackOff
from deborgen_shared.client.blobs import Seen
from deborgen_shared.errors import Code
from deborgen_shared.jobfile.paths import check_path
from deborgen_shared.messages import BlobsMissing

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 4
#: A transfer is given up after this long without a byte.
PATIENCE_SECONDS = 120.0

_ASK_AT_ONCE = 5_000
_AGAIN = "the same command goes on where it stopped"
_MOVE = "remove the link or file that is in the way, or pull into another folder"


class Stopped(Exception):
    """The other transfers were given up; this one ends, too."""


class UnsafeTarget(DeborgenError):
    """An artifact that would be written outside the folder."""


class WrongDigest(DeborgenError):
    """The bytes that arrived are not the bytes that the job made."""


class Tries:
    """Whether a transfer that broke off is tried again: for as long as there is some progress now and then."""

    def __init__(self, seen: Seen) -> None:
        self.told = blobs.Told(seen)
        self._before = 0
        self._back_off = BackOff(first=0.2, most=5.0)
        self._deadline = time.monotonic() + PATIENCE_SECONDS

    def again(self, wanted: float | None = None) -> bool:
        """Pause, and then True; or False when the patience has ended. `wanted` are seconds that were asked for."""
        if self.told.position > self._before:
            self._before = self.told.position
            self._back_off.reset()
            self._deadline = time.monotonic() + PATIENCE_SECONDS
        pause = self._back_off.after_failure(wanted)
        if time.monotonic() + pause > self._deadline:
            return False
        time.sleep(pause)
        return True


def all_at_once(items: Iterable[T], transfer: Callable[[T, Seen], R], seen: Seen) -> list[R]:
    """What `transfer` makes of each item, in order. It must tell of every piece; there it is stopped, if need be."""
    stop = threading.Event()

    def told(count: int) -> None:
        if stop.is_set():
            raise Stopped
        seen(count)

    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        tasks = [pool.submit(transfer, item, told) for item in items]
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            for task in done:
                task.result()
            return [task.result() for task in tasks]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def missing(connection: Connection, files: Iterable[LocalFile]) -> list[tuple[LocalFile, str]]:
    """The files that the coordinator lacks, one per digest, and where each is to be put."""
    by_digest = {file.sha256: file for file in files}
    digests = list(by_digest)
    found = []
    for start in range(0, len(digests), _ASK_AT_ONCE):
        body = BlobsMissing(digests=digests[start : start + _ASK_AT_ONCE])
        answer = connection.call(contract.MISSING_BLOBS, body)
        found += [(by_digest[blob.sha256], blob.url) for blob in answer.missing]
    return found


def upload(connection: Connection, wanted: list[tuple[LocalFile, str]], seen: Seen = blobs.ignore) -> None:
    """Put all of them, or raise. `seen` hears of every byte that went out."""
    all_at_once(wanted, lambda each, told: _upload_one(connection, *each, told), seen)


def _upload_one(connection: Connection, file: LocalFile, url: str, seen: Seen) -> None:
    tries = Tries(seen)
    resume = False
    while True:
        try:
            blobs.upload(connection.transport, file.source, file.sha256, file.size, url, tries.told, resume=resume)
            return
        except transport.Unreachable as trouble:
            # The coordinator may not have noticed yet that the line of the first try was cut, and keep its part locked.
            # Sent as a whole, the blob needs no part.
            resume = trouble.code != Code.SLOW_DOWN
            if not tries.again(trouble.retry_after):
                raise Unreachable(f"{file.path} could not be uploaded: {trouble}", "submit once more") from None
        except transport.Refused as refused:
            resume = True
            if refused.code != Code.UPLOAD_CONFLICT or not tries.again():
                raise _upload_refused(connection, file, refused) from None


def _upload_refused(connection: Connection, file: LocalFile, refused: transport.Refused) -> DeborgenError:
    if refused.code == Code.MALFORMED:
        return DeborgenError(f"{file.path} changed while it was uploaded", "submit once more")
    error = connection.explained(refused)
    return type(error)(f"{file.path}: {error.message}", error.hint, code=error.code)


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
        tries = Tries(seen)
        while True:
            try:
                _fetch(connection, item, folder, part, tries.told)
                break
            except transport.Refused as refused:
                raise connection.explained(refused) from None
            except transport.Unreachable as trouble:
                if not tries.again(trouble.retry_after):
                    text = f"{item.path} of job {item.job} could not be fetched whole: {trouble}"
                    raise Unreachable(text, _AGAIN) from None
        if _digest_at(folder, part, item.size) != item.sha256:
            os.unlink(part, dir_fd=folder)
            raise WrongDigest(f"{item.path} of job {item.job} arrived with another digest; it was not kept", _AGAIN)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        return into / item.target
    finally:
        os.close(folder)


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
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(connection: Connection, item: Wanted, folder: int, part: str, told: blobs.Told) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(part, flags, 0o644, dir_fd=folder), "r+b", buffering=0) as file:
        call = contract.GET_ARTIFACT
        blobs.download(connection.transport, call, file, item.size, told, job=item.job, path=item.path)
