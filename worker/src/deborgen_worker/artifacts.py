"""Collect a job's artifacts by globs in its workspace, without ever following a link out of it.

A file is first moved out of the job's reach, and then checked and hashed, so that the job cannot replace it in between.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deborgen_shared.jobfile.globs import Glob
from deborgen_shared.jobfile.limits import PATH_BYTES
from deborgen_shared.jobfile.model import ArtifactPattern
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.messages import Artifact
from deborgen_worker import shared_folders
from deborgen_worker.disk import Disk
from deborgen_worker.folders import NO_LINK, OWN, may_read_for, open_folder, owner_of

#: An attempt may leave at most this many artifacts.
MAX_ARTIFACTS = 10_000
#: Name at most this many skipped artifacts in the log; the others are only counted.
MAX_NAMED = 20
#: The folder beside the workspace to which artifacts are moved, and the file in it that lists their paths.
TAKEN, LIST = "artifacts", "list.json"
#: Read this many bytes of a file at once.
BLOCK = 1 << 20

#: Called for each path that is looked at and, with True, for each block that is read. It raises an error to give up.
Advance = Callable[[bool], None]


@dataclass
class CollectedArtifacts:
    """The artifacts, and notes about them for the log. If all of them were refused, `refused` says why."""

    artifacts: list[Artifact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: str = ""


def collect(
    workspace: Path,
    folder: Path,
    patterns: Sequence[ArtifactPattern],
    succeeded: bool,
    advance: Advance = lambda _read: None,
    shared: Path | None = None,
) -> CollectedArtifacts:
    """Take the files that match the patterns. If there are too many, nothing is taken and `refused` says so.

    If the job has worked in a `shared` folder, its files are copied and stay there.
    """
    found = CollectedArtifacts()
    if shared is None:
        _put_back(workspace, folder)
    wanted = [each.path for each in patterns if succeeded or each.when == "always"]
    if not wanted:
        return found
    chosen: dict[str, None] = {}
    globs = {pattern: Glob(pattern) for pattern in wanted if len(pattern) <= PATH_BYTES}
    hits = dict.fromkeys(globs, 0)
    found.notes += [f"artifact {each[:60]!r}… is too long for a pattern" for each in wanted if each not in globs]
    skipped: list[str] = []
    for path, mode in walk(workspace if shared is None else Path(os.path.realpath(shared))):
        advance(False)
        matching = [pattern for pattern, glob in globs.items() if glob.matches(path)]
        if not matching:
            continue
        problem = check_path(path) or (None if stat.S_ISREG(mode) else f"is {kind(mode)}")
        if problem is None and not path.isprintable():
            problem = "has a name with control characters"
        if problem:
            skipped.append(f"artifact {path!r} was skipped: it {problem}")
            continue
        for pattern in matching:
            hits[pattern] += 1
        chosen[path] = None
        if _too_many(chosen):
            found.refused = f"the job left more than {MAX_ARTIFACTS} artifacts"
            return found
    for first, second in find_twins(chosen):
        if chosen.pop(second, 0) is None:
            skipped.append(f"artifact {second!r} was skipped: some file systems cannot tell it from {first!r}")
    found.notes += [f"artifact {pattern!r} matched nothing" for pattern, count in hits.items() if count == 0]
    found.notes += skipped[:MAX_NAMED]
    if len(skipped) > MAX_NAMED:
        found.notes.append(f"{len(skipped) - MAX_NAMED} more artifacts were skipped")
    for number, path in enumerate(_write_list(folder, sorted(chosen))):
        target = folder / TAKEN / str(number)
        if shared is None:
            artifact = _take(workspace, path, target, advance)
        else:
            artifact = _copy(workspace, shared, path, target, advance)
        if artifact is None:
            found.notes.append(f"artifact {path!r} was skipped: it changed while it was being collected")
        else:
            found.artifacts.append(artifact)
    return found


def take_whole(folder: Path, name: str, advance: Advance = lambda _read: None) -> Artifact:
    """Take a file that the worker itself has made in an attempt's folder. It can be taken again."""
    target = folder / TAKEN / "0"
    _write_list(folder, [name])
    with contextlib.suppress(FileNotFoundError):
        (folder / name).rename(target)
    digest, size = hashlib.sha256(), 0
    with target.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
            advance(True)
        os.fsync(file.fileno())
    return Artifact(path=name, sha256=digest.hexdigest(), size=size)


def _too_many(chosen: Collection[str]) -> bool:
    return len(chosen) > MAX_ARTIFACTS


def stored(folder: Path) -> dict[str, Path]:
    """Where the artifacts of an attempt are stored, by their paths in the workspace."""
    try:
        paths = json.loads((folder / TAKEN / LIST).read_bytes())
    except FileNotFoundError:
        return {}
    return {path: folder / TAKEN / str(number) for number, path in enumerate(paths)}


def _write_list(folder: Path, paths: list[str]) -> list[str]:
    """Write the list before anything is moved, so that an interrupted collection can be done again."""
    (folder / TAKEN).mkdir(exist_ok=True, mode=0o700)
    Disk().replace(folder / TAKEN / LIST, json.dumps(paths).encode())
    return paths


def _put_back(workspace: Path, folder: Path) -> None:
    for path, taken in stored(folder).items():
        parent, name = os.path.split(path)
        with contextlib.suppress(OSError):
            back = open_folder(workspace, parent)
            try:
                os.rename(taken, name, dst_dir_fd=back)
            finally:
                os.close(back)


def _take(workspace: Path, path: str, target: Path, advance: Advance) -> Artifact | None:
    parent, name = os.path.split(path)
    try:
        folder = open_folder(workspace, parent)
    except OSError:
        return None
    try:
        os.rename(name, target, src_dir_fd=folder)
        fd = os.open(target, NO_LINK | os.O_NONBLOCK)
    except OSError:
        return None
    finally:
        os.close(folder)
    with os.fdopen(fd, "rb"):
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not may_read_for(owner_of(workspace), found):
            return None
    return _hashed(path, target, advance)


def _copy(workspace: Path, shared: Path, path: str, target: Path, advance: Advance) -> Artifact | None:
    """Copy a file of a shared folder. It must belong to the job's user, or to whoever owns the folder."""
    try:
        shared_folders.take_copy(shared, path, target, {owner_of(workspace), shared.stat().st_uid})
    except OSError:
        return None
    return _hashed(path, target, advance)


def _hashed(path: str, target: Path, advance: Advance) -> Artifact:
    with target.open("rb") as file:
        digest, size = hashlib.sha256(), 0
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
            advance(True)
        os.fsync(file.fileno())
    with contextlib.suppress(OSError):
        target.chmod(0o600)
    return Artifact(path=path, sha256=digest.hexdigest(), size=size)


def walk(workspace: Path) -> Iterator[tuple[str, int]]:
    """Every entry that is not a folder: its path in the workspace and its mode. Links are listed, not followed."""
    for root, folders, names, fd in os.fwalk(workspace, follow_symlinks=False):
        base = os.path.relpath(root, workspace)
        prefix = "" if base == "." else base + "/"
        if not prefix:
            folders[:] = [each for each in folders if each != OWN]
        if len(prefix) > PATH_BYTES:  # each level needs a file descriptor, and every path below would be too long
            folders.clear()
        for name in [*names, *folders]:  # a link to a folder is listed among the folders
            with contextlib.suppress(OSError):
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                if not stat.S_ISDIR(mode):
                    yield prefix + name, mode


def kind(mode: int) -> str:
    words = {"l": "a symbolic link", "p": "a FIFO", "s": "a socket", "c": "a device", "b": "a device"}
    return words.get(stat.filemode(mode)[0], "not a regular file")
