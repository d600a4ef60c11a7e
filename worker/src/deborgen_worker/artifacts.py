"""What a job leaves behind: globs in the workspace, collected without ever following a link out of it.

A file that is taken is moved out of the job's reach first, then looked at and hashed, so nothing can be swapped between
the look and the reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deborgen_shared.jobfile.model import ArtifactPattern
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.messages import Artifact
from deborgen_worker.folders import OWN

MOST = 10_000
NAMED = 20
TAKEN, LIST = "artifacts", "list.json"
#: How files and folders of a job are opened: never through a link.
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Collected:
    """The artifacts, and what is to be said about them in the log."""

    artifacts: list[Artifact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: str = ""


def collect(workspace: Path, folder: Path, patterns: Sequence[ArtifactPattern], succeeded: bool) -> Collected:
    """Take what the patterns name. Nothing is taken when it is too much: then `refused` says so."""
    found = Collected()
    _put_back(workspace, folder)
    wanted = [each.path for each in patterns if succeeded or each.when == "always"]
    if not wanted:
        return found
    chosen: dict[str, None] = {}
    matchers = [(pattern, translate(pattern)) for pattern in wanted]
    hits = dict.fromkeys(wanted, 0)
    skipped: list[str] = []
    for path, mode in walk(workspace):
        matching = [pattern for pattern, matcher in matchers if matcher.fullmatch(path)]
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
            found.refused = f"the job left more than {MOST} artifacts"
            return found
    for first, second in find_twins(chosen):
        if chosen.pop(second, 0) is None:
            skipped.append(f"artifact {second!r} was skipped: some file systems take it for {first!r}")
    found.notes += [f"artifact {pattern!r} matched nothing" for pattern, count in hits.items() if count == 0]
    found.notes += skipped[:NAMED]
    if len(skipped) > NAMED:
        found.notes.append(f"{len(skipped) - NAMED} more artifacts were skipped")
    for number, path in enumerate(_write_list(folder, sorted(chosen))):
        artifact = _take(workspace, path, folder / TAKEN / str(number))
        if artifact is None:
            found.notes.append(f"artifact {path!r} was skipped: it changed while it was collected")
        else:
            found.artifacts.append(artifact)
    return found


def _too_many(chosen: Collection[str]) -> bool:
    return len(chosen) > MOST


def stored(folder: Path) -> dict[str, Path]:
    """Where the artifacts of an attempt lie, by their paths."""
    try:
        paths = json.loads((folder / TAKEN / LIST).read_bytes())
    except FileNotFoundError:
        return {}
    return {path: folder / TAKEN / str(number) for number, path in enumerate(paths)}


def _write_list(folder: Path, paths: list[str]) -> list[str]:
    """What will be taken, written down before anything is: a collection that is cut short can be done over."""
    (folder / TAKEN).mkdir(exist_ok=True)
    with (folder / TAKEN / LIST).open("w") as file:
        json.dump(paths, file)
        file.flush()
        os.fsync(file.fileno())
    return paths


def _put_back(workspace: Path, folder: Path) -> None:
    for path, taken in stored(folder).items():
        with contextlib.suppress(OSError):
            taken.rename(workspace / path)


def _take(workspace: Path, path: str, target: Path) -> Artifact | None:
    parent, name = os.path.split(path)
    try:
        folder = _open_folder(workspace, parent)
    except OSError:
        return None
    try:
        os.rename(name, target, src_dir_fd=folder)
        fd = os.open(target, NO_LINK | os.O_NONBLOCK)
    except OSError:
        return None
    finally:
        os.close(folder)
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return None
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
        os.fsync(fd)
    with contextlib.suppress(OSError):
        target.chmod(0o600)
    return Artifact(path=path, sha256=digest, size=size)


def _open_folder(workspace: Path, path: str) -> int:
    flags = NO_LINK | os.O_DIRECTORY
    folder = os.open(workspace, flags)
    for part in path.split("/") if path else []:
        try:
            following = os.open(part, flags, dir_fd=folder)
        finally:
            os.close(folder)
        folder = following
    return folder


def walk(workspace: Path) -> Iterator[tuple[str, int]]:
    """Every entry that is not a folder, as a path in the workspace with its mode; links are named, not followed."""
    for root, folders, names, fd in os.fwalk(workspace, follow_symlinks=False):
        base = os.path.relpath(root, workspace)
        prefix = "" if base == "." else base + "/"
        if not prefix:
            folders[:] = [each for each in folders if each != OWN]
        for name in [*names, *folders]:  # a link to a folder is listed among the folders
            with contextlib.suppress(OSError):
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                if not stat.S_ISDIR(mode):
                    yield prefix + name, mode


def kind(mode: int) -> str:
    for test, word in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return word
    return "not a regular file"


def translate(pattern: str) -> re.Pattern[str]:
    """A glob as a pattern of whole paths: `*` and `?` stay within a name, `**` crosses folders, `dir/` means all below.

    A plain name of a folder means all below it too.
    """
    pattern = pattern.removeprefix("./")
    if pattern.endswith("/"):
        pattern += "**"
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + r"(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            out, at = out + r".+", at + 2
        elif pattern[at] == "*":
            out, at = out + r"[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + r"[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inner = pattern[at + 1 : end].replace("\\", r"\\").replace("/", "")
            inner = "^" + inner[1:] if inner.startswith("!") else inner
            out, at = out + f"[{inner}]", end + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    return re.compile(out + r"(?:/.+)?", re.DOTALL)
