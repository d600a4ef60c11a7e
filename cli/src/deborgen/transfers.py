"""Parallel uploads and downloads of blobs. A transfer whose connection is cut resumes where it stopped.

Uploads skip files that the coordinator already has. Downloads check every digest, and never write outside their folder.
When one transfer fails or the person interrupts, the others stop as soon as they next send or receive bytes, and those
that wait before their next try stop at once.
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
from deborgen_shared.client.blobs import OnBytes
from deborgen_shared.errors import Code
from deborgen_shared.jobfile.paths import check_path
from deborgen_shared.messages import BlobDigests, MissingBlob

T = TypeVar("T")
R = TypeVar("R")

#: Number of transfers at the same time.
PARALLEL = 4
#: A transfer fails after this many seconds without a byte.
PATIENCE_SECONDS = 120.0

#: Maximum number of digests per request for missing blobs.
_DIGESTS_PER_REQUEST = 5_000
_AGAIN = "run the same command again: it continues where it stopped"
_MOVE = "remove the link or file that is in the way, or pull into another folder"


class Stopped(Exception):
    """Another transfer failed, so this one stops too."""


class UnsafeTarget(DeborgenError):
    """An artifact would be written outside the folder."""


class WrongDigest(DeborgenError):
    """The bytes that arrived are not the bytes that the job made."""


class Tries:
    """Decides whether to retry an interrupted transfer: yes, as long as it still makes some progress."""

    def __init__(self, on_bytes: OnBytes, stop: threading.Event) -> None:
        self.progress = blobs.Progress(on_bytes)
        self._stop = stop
        self._last_position = 0
        self._back_off = BackOff(first=0.2, most=5.0)
        self._deadline = time.monotonic() + PATIENCE_SECONDS

    def pause_for_retry(self, requested: float | None = None) -> bool:
        """Pause and return True, or return False when it is time to give up. The server may request a longer pause."""
        if self.progress.position > self._last_position:
            self._last_position = self.progress.position
            self._back_off.reset()
            self._deadline = time.monotonic() + PATIENCE_SECONDS
        pause = self._back_off.after_failure(requested)
        if time.monotonic() + pause > self._deadline:
            return False
        if self._stop.wait(pause):
            raise Stopped
        return True


def in_parallel(items: Iterable[T], transfer: Callable[[T, Tries], R], on_bytes: OnBytes) -> list[R]:
    """The results of `transfer` for all items, in order. A transfer can be stopped when it reports bytes or waits."""
    stop = threading.Event()

    def report(count: int) -> None:
        if stop.is_set():
            raise Stopped
        on_bytes(count)

    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        tasks = [pool.submit(lambda item: transfer(item, Tries(report, stop)), item) for item in items]
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            for task in done:
                task.result()
            return [task.result() for task in tasks]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def missing(connection: Connection, files: Iterable[LocalFile]) -> list[tuple[LocalFile, MissingBlob]]:
    """The files that the coordinator lacks, one per digest, and the place to upload each to."""
    by_digest = {file.sha256: file for file in files}
    digests = list(by_digest)
    found = []
    for start in range(0, len(digests), _DIGESTS_PER_REQUEST):
        body = BlobDigests(digests=digests[start : start + _DIGESTS_PER_REQUEST])
        answer = connection.call(contract.MISSING_BLOBS, body)
        found += [(by_digest[blob.sha256], blob) for blob in answer.missing]
    return found


def upload(
    connection: Connection, lacking: list[tuple[LocalFile, MissingBlob]], on_bytes: OnBytes = blobs.ignore
) -> None:
    """Upload all these files, each to its place, or raise."""
    in_parallel(lacking, lambda each, tries: _upload_one(connection, *each, tries), on_bytes)


def _upload_one(connection: Connection, file: LocalFile, place: MissingBlob, tries: Tries) -> None:
    resume = False
    while True:
        try:
            blobs.upload(
                connection.transport, file.source, file.sha256, file.size, place, tries.progress, resume=resume
            )
            return
        except transport.NoAnswer as trouble:
            # The coordinator may not have noticed yet that the first connection was cut, and still hold a lock on the
            # partial upload. Sending the whole blob again does not need that lock.
            resume = trouble.code != Code.SLOW_DOWN
            if not tries.pause_for_retry(trouble.retry_after):
                raise Unreachable(f"{file.path} could not be uploaded: {trouble}", "submit it again") from None
        except transport.Refused as refused:
            resume = True
            if refused.code != Code.UPLOAD_CONFLICT or not tries.pause_for_retry():
                raise _upload_refused(connection, file, refused) from None


def _upload_refused(connection: Connection, file: LocalFile, refused: transport.Refused) -> DeborgenError:
    if refused.code == Code.MALFORMED:
        return DeborgenError(f"{file.path} changed while it was being uploaded", "submit it again")
    error = connection.explained(refused)
    return type(error)(f"{file.path}: {error.message}", error.hint, code=error.code)


@dataclass(frozen=True)
class ArtifactToFetch:
    """One artifact to fetch, and its path inside the target folder."""

    job: str
    path: str
    sha256: str
    size: int
    target: str


def pull(
    connection: Connection, artifacts: Iterable[ArtifactToFetch], into: Path, on_bytes: OnBytes = blobs.ignore
) -> list[Path]:
    """Fetch these artifacts. A file that already exists with the right digest is not fetched again."""
    items = list(artifacts)
    for item in items:
        if wrong := check_path(item.target):  # completes the sentence "its path …"
            raise UnsafeTarget(f"the artifact {item.path!r} of job {item.job} is refused: its path {wrong}")
    into.mkdir(parents=True, exist_ok=True)
    return in_parallel(items, lambda item, tries: _pull_one(connection, item, into, tries), on_bytes)


def _pull_one(connection: Connection, item: ArtifactToFetch, into: Path, tries: Tries) -> Path:
    *folders, name = item.target.split("/")
    # Open the folder level by level, never through a link: a folder that is swapped meanwhile cannot redirect the file.
    folder = _open_folder(into, folders)
    try:
        if _digest_at(folder, name, item.size) == item.sha256:
            tries.progress.reached(item.size)
            return into / item.target
        short = name.encode()[:80].decode(errors="ignore")  # a file name may have at most 255 bytes
        part = f".{short}.{item.sha256[:16]}.part"
        while True:
            try:
                _fetch(connection, item, folder, part, tries.progress)
                break
            except transport.Refused as refused:
                raise connection.explained(refused) from None
            except transport.NoAnswer as trouble:
                if not tries.pause_for_retry(trouble.retry_after):
                    text = f"{item.path} of job {item.job} could not be fetched completely: {trouble}"
                    raise Unreachable(text, _AGAIN) from None
        if _digest_at(folder, part, item.size) != item.sha256:
            os.unlink(part, dir_fd=folder)
            found = blobs.describe_damage(connection.transport, item.sha256)
            raise WrongDigest(
                f"{item.path} of job {item.job} {found} (wrong digest), and your copy was deleted", _AGAIN
            )
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
    """The digest of a regular file of this size in the folder; an empty string if there is none."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(connection: Connection, item: ArtifactToFetch, folder: int, part: str, progress: blobs.Progress) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(part, flags, 0o644, dir_fd=folder), "r+b", buffering=0) as file:
        call = contract.GET_ARTIFACT
        blobs.download(connection.transport, call, file, item.size, progress, job=item.job, path=item.path)
