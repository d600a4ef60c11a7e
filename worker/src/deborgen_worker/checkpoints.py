"""What a running program has saved: copied while it is frozen, then uploaded, and restored before the next attempt.

A checkpoint is complete or not there at all. Its copy is a folder that counts once its list is written, which is last;
the coordinator replaces the job's checkpoint only when it has all blobs. The path belongs to the job: it may hold
links, pipes, endless files or millions of them. Then, at worst, nothing is saved and the job gets a warning.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from deborgen_shared.jobfile.limits import PATH_BYTES
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.jobfile.units import format_size
from deborgen_shared.messages import CHECKPOINT_FILES, SavedFile
from deborgen_worker import host
from deborgen_worker.artifacts import BLOCK, kind
from deborgen_worker.coordinator import CoordinatorClient
from deborgen_worker.crash import crash_point
from deborgen_worker.disk import Disk
from deborgen_worker.folders import NO_LINK, SAVED, may_read_for, open_folder, owner_of

#: Look at most at this many entries of the path: files, folders, and what cannot be saved.
MOST_ENTRIES = 5 * CHECKPOINT_FILES
#: Copy this many bytes at once. In between, the copy may be given up.
COPY_BYTES = 16 << 20
#: A file that was last changed less than this many seconds before its copy is copied again next time: a later change
#: may bear the same time.
SETTLED_SECONDS = 2.0
#: Try to upload the blobs of one checkpoint at most this often.
TRIES = 3
#: The list of a copy's files, and the file with the number of the newest copy. A number is never used twice.
LIST, NUMBER = "list.json", "number"
#: Keep at most this many warnings, each with at most this many characters.
MOST_WARNINGS, WARNING = 5, 300
#: Errors of the call that copies within the kernel, for file systems that cannot do it.
CANNOT_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})

Identity = tuple[int, int, int, int, int]


class CannotSave(Exception):
    """Nothing was saved, and why."""


class CopiedFile(msgspec.Struct):
    """A file of a checkpoint. `copy` is its name in the folder of the copy; empty if the coordinator has its blob.

    `identity` is what the kernel said about the file, if that will tell whether it has changed.
    """

    path: str
    size: int
    mode: int
    copy: str = ""
    sha256: str = ""
    identity: Identity | None = None


class Copy(msgspec.Struct):
    """A complete copy that waits for its upload. After a reboot it may have lost bytes, and is not used."""

    boot: str
    number: int
    folder: str
    files: list[CopiedFile]


_decoder = msgspec.json.Decoder(Copy)
_encode = msgspec.json.Encoder().encode


class Checkpoints:
    """The checkpoints of one attempt. `pending` is the newest copy that the coordinator does not have yet.

    `most` is how many bytes a checkpoint may have, `reserve` how many must stay free on the disk.
    """

    def __init__(self, workspace: Path, folder: Path, path: str, most: int, reserve: int) -> None:
        self._workspace, self._folder, self.path = workspace, folder / SAVED, path
        self._most, self._reserve = most, reserve
        self.warnings: list[str] = []
        self.pending: Copy | None = self._left_behind()
        self._closed = False
        #: Held while files are copied, and while `pending` is changed.
        self._copying, self._swapping, self._uploading = threading.Lock(), threading.Lock(), threading.Lock()
        self._uploaded: dict[str, CopiedFile] = {}

    # Copying

    def copy(self, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Copy the path, which nobody changes meanwhile. False if there is nothing; raises `CannotSave`.

        Between two blocks it asks whether the copy `is_wanted` any more.
        """
        with self._copying:
            number = self._new_number()
            folder = self._folder / str(number)
            try:
                folder.mkdir(mode=0o700)
                files = self._copy_into(folder, lambda: is_wanted() and not self._closed)
                made = Copy(host.boot_id(), number, str(folder), files)
                if files:
                    (folder / LIST).write_bytes(_encode(made))  # last: without it, the copy does not count
                    crash_point("after-checkpoint-copied")
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise CannotSave(f"{self.path!r} cannot be copied: {error.strerror or error}") from None
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            if not files:
                shutil.rmtree(folder, ignore_errors=True)
                return False
            with self._swapping:
                before, self.pending = self.pending, made
            self._remove(before)
            return True

    def _new_number(self) -> int:
        """A number that no copy of this attempt has had, in no session of the worker."""
        try:
            self._folder.mkdir(exist_ok=True, mode=0o700)
            file, new = self._folder / NUMBER, self._folder / f"{NUMBER}.new"
            number = (int(file.read_text()) if file.exists() else 0) + 1
            new.write_text(str(number))
            new.replace(file)
        except (OSError, ValueError) as error:
            raise CannotSave(f"{self.path!r} cannot be copied: {error}") from None
        return number

    def _copy_into(self, folder: Path, is_wanted: Callable[[], bool]) -> list[CopiedFile]:
        found: list[CopiedFile] = []
        owner, total, free = owner_of(self._workspace), 0, Disk().free(folder)
        for seen, (path, parent, name, info) in enumerate(_walk(self._workspace, self.path)):
            if not is_wanted():
                raise CannotSave("the copy was given up")
            problem = check_path(path) or (None if stat.S_ISREG(info.st_mode) else f"is {kind(info.st_mode)}")
            if problem is None and not path.isprintable():
                problem = "has a name with control characters"
            if problem:
                self.warn(f"{path!r} is not in the checkpoint: it {problem}")
                continue
            total += info.st_size
            if len(found) == CHECKPOINT_FILES or seen >= MOST_ENTRIES:
                raise CannotSave(f"{self.path!r} has more than {CHECKPOINT_FILES} files")
            if total > self._most:
                raise CannotSave(f"{self.path!r} is larger than {format_size(self._most)}, the job's 'resources.disk'")
            known = self._uploaded.get(path)
            if known is not None and known.identity == _identity(info):
                found.append(msgspec.structs.replace(known, copy="", mode=info.st_mode & 0o777))
                continue
            free -= info.st_size
            if free < self._reserve:
                raise CannotSave("the disk of the worker is nearly full")
            copied = CopiedFile(path, info.st_size, info.st_mode & 0o777, str(len(found)))
            copied.identity = _copy_file(parent, name, owner, folder / copied.copy, is_wanted)
            found.append(copied)
        for first, second in find_twins(file.path for file in found):
            raise CannotSave(f"some file systems cannot tell {second!r} from {first!r}")
        return found

    def _left_behind(self) -> Copy | None:
        """The newest complete copy of an earlier session of the worker."""
        numbers = sorted((int(each.name) for each in self._folder.glob("*") if each.name.isdigit()), reverse=True)
        for folder in (self._folder / str(number) for number in numbers):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found = _decoder.decode((folder / LIST).read_bytes())
                if found.boot == host.boot_id() and found.folder == str(folder):
                    return found
        return None

    # Uploading

    def upload(self, coordinator: CoordinatorClient, attempt: str, session: str) -> bool:
        """Upload the pending copy, and make it the job's checkpoint. False if a newer copy has replaced it meanwhile.

        Raises `NoAnswer`, `Refused` and `CannotSave`.
        """
        with self._uploading:
            copy = self.pending
            return copy is not None and self._upload(copy, coordinator, attempt, session)

    def _upload(self, copy: Copy, coordinator: CoordinatorClient, attempt: str, session: str) -> bool:
        folder = Path(copy.folder)
        for file in copy.files:
            if not file.sha256:
                file.sha256 = _digest(folder / file.copy)
        crash_point("before-checkpoint-uploaded")
        files = [SavedFile(path=each.path, sha256=each.sha256, size=each.size, mode=each.mode) for each in copy.files]
        places = {each.sha256: each for each in copy.files if each.copy}
        missing = coordinator.missing(sorted(places)) if places else {}
        for _ in range(TRIES):
            for sha256, place in missing.items():
                if self.pending is not copy:
                    return False
                coordinator.upload(folder / places[sha256].copy, sha256, places[sha256].size, place)
            crash_point("before-checkpoint-saved")
            answer = coordinator.save_checkpoint(attempt, copy.number, files, session)
            if not answer.missing:
                return self._accepted(copy)
            if gone := set(answer.missing) - places.keys():  # it was not copied, because the coordinator had it
                self._uploaded = {path: file for path, file in self._uploaded.items() if file.sha256 not in gone}
                raise CannotSave("the coordinator lacks a file that had not changed; it is sent next time")
            missing = coordinator.missing(answer.missing)
        raise CannotSave(f"the coordinator did not accept it after {TRIES} uploads")

    def _accepted(self, copy: Copy) -> bool:
        self._uploaded = {file.path: file for file in copy.files}
        return self._drop(copy)

    def _drop(self, copy: Copy | None) -> bool:
        """Remove a copy. Returns whether it was the newest."""
        with self._swapping:
            newest = self.pending is copy
            if newest:
                self.pending = None
        self._remove(copy)
        return newest

    def give_up(self, warning: str) -> None:
        """Remove the pending copy, because it can never be uploaded."""
        self.warn(warning)
        self._drop(self.pending)

    def warn(self, warning: str) -> bool:
        """Keep a warning for the job's submitter. False if there were enough, or the same."""
        text = f"checkpoint: {warning}"[:WARNING]
        fresh = text not in self.warnings and len(self.warnings) < MOST_WARNINGS
        if fresh:
            self.warnings.append(text)
        return fresh

    def close(self) -> None:
        """End a copy that is being made, and wait for that: the folder is about to be removed."""
        self._closed = True
        with self._copying:
            pass

    @staticmethod
    def _remove(copy: Copy | None) -> None:
        if copy is not None:
            shutil.rmtree(copy.folder, ignore_errors=True)


def _walk(workspace: Path, root: str) -> Iterator[tuple[str, int, str, os.stat_result]]:
    """Every entry below the root that is not a folder, or the root itself: its path in the workspace, the open folder
    that it is in, its name there, and what the kernel says about it. Links are listed, not followed."""
    above, _, name = root.rpartition("/")
    try:
        folder = open_folder(workspace, above)
    except FileNotFoundError:
        return
    try:
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(info.st_mode):
            yield root, folder, name, info
            return
        for top, folders, names, fd in os.fwalk(name, dir_fd=folder, follow_symlinks=False):
            prefix = f"{above}/{top}/" if above else f"{top}/"
            if len(prefix) > PATH_BYTES:  # each level needs a file descriptor, and every path below would be too long
                folders.clear()
            for each in [*names, *folders]:  # a link to a folder is listed among the folders
                info = os.stat(each, dir_fd=fd, follow_symlinks=False)
                if not stat.S_ISDIR(info.st_mode):
                    yield prefix + each, fd, each, info
    finally:
        os.close(folder)


def _identity(info: os.stat_result) -> Identity:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _copy_file(folder: int, name: str, owner: int, target: Path, is_wanted: Callable[[], bool]) -> Identity | None:
    """Copy a regular file of the job. Where the file system can share bytes between files, no bytes are copied."""
    source = os.open(name, NO_LINK | os.O_NONBLOCK, dir_fd=folder)
    try:
        before = os.fstat(source)
        if not stat.S_ISREG(before.st_mode) or not may_read_for(owner, before):
            raise CannotSave(f"{name!r} is not a regular file of the job")
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            copied = 0
            while count := _copy_block(source, new):
                copied += count
                if copied > before.st_size or not is_wanted():
                    break
        finally:
            os.close(new)
        after = os.fstat(source)
        if _identity(after) != _identity(before) or copied != before.st_size:
            raise CannotSave(f"{name!r} changed while it was being copied" if is_wanted() else "the copy was given up")
        settled = time.time_ns() - after.st_ctime_ns > SETTLED_SECONDS * 1e9
        return _identity(after) if settled else None
    finally:
        os.close(source)


def _copy_block(source: int, target: int) -> int:
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(source, target, COPY_BYTES)
        except OSError as error:
            if error.errno not in CANNOT_COPY:
                raise
    data = os.read(source, BLOCK)
    Disk().append(target, data)
    return len(data)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
