"""Collects a job's artifacts by globs in its workspace, without ever following a link out of it.

A file is first moved out of the job's reach, then checked and hashed, so nothing can be swapped between the check and
the read.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deborgen_shared.jobfile.limits import PATH_BYTES
from deborgen_shared.jobfile.model import ArtifactPattern
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.messages import Artifact
from deborgen_worker.disk import Disk
from deborgen_worker.folders import NO_LINK, OWN, open_folder

#: An attempt may leave at most this many artifacts.
MAX_ARTIFACTS = 10_000
#: Name at most this many skipped artifacts in the log; the others are only counted.
MAX_NAMED = 20
#: The folder beside the workspace to which artifacts are moved, and the file in it that lists their paths.
TAKEN, LIST = "artifacts", "list.json"


@dataclass
class CollectedArtifacts:
    """The artifacts, notes about them for the log, and why they were refused as a whole, if they were."""

    artifacts: list[Artifact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: str = ""


def collect(workspace: Path, folder: Path, patterns: Sequence[ArtifactPattern], succeeded: bool) -> CollectedArtifacts:
    """Take the files that the patterns name. If there are too many, nothing is taken and `refused` says so."""
    found = CollectedArtifacts()
    _put_back(workspace, folder)
    wanted = [each.path for each in patterns if succeeded or each.when == "always"]
    if not wanted:
        return found
    chosen: dict[str, None] = {}
    globs = {pattern: Glob(pattern) for pattern in wanted}
    hits = dict.fromkeys(wanted, 0)
    skipped: list[str] = []
    for path, mode in walk(workspace):
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
        artifact = _take(workspace, path, folder / TAKEN / str(number))
        if artifact is None:
            found.notes.append(f"artifact {path!r} was skipped: it changed while it was being collected")
        else:
            found.artifacts.append(artifact)
    return found


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
    (folder / TAKEN).mkdir(exist_ok=True)
    Disk().replace(folder / TAKEN / LIST, json.dumps(paths).encode())
    return paths


def _put_back(workspace: Path, folder: Path) -> None:
    for path, taken in stored(folder).items():
        with contextlib.suppress(OSError):
            taken.rename(workspace / path)


def _take(workspace: Path, path: str, target: Path) -> Artifact | None:
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
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
        os.fsync(fd)
    with contextlib.suppress(OSError):
        target.chmod(0o600)
    return Artifact(path=path, sha256=digest, size=size)


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


#: Each wildcard becomes one or more positions of the pattern. The list says what each position matches. The bits mark
#: positions that repeat: they match any number of characters, even none. So `**` matches at least one character. `**/`
#: stands for any number of folders, each with its slash, even none. Its first position matches no character: it is the
#: place from which all three positions can be skipped.
WILD = {"*": (["?"], 0b1), "**": (["**", "**"], 0b10), "**/": (["", "**", "/"], 0b11)}


class Glob:
    """A pattern of whole paths: `*` and `?` stay within a name, `**` crosses folders, `dir/` means all below it.

    The plain name of a folder also means all below it. People write the patterns, and a job chooses the paths, so
    matching must not backtrack. All ways to match are followed at once, with one bit per position in the pattern. The
    work is at most the length of the pattern times the length of the path.
    """

    def __init__(self, pattern: str) -> None:
        pattern = re.sub(r"(\*\*/)+", "**/", pattern.removeprefix("./"))
        if pattern.endswith("/"):
            pattern += "**"
        #: What each position matches; the bits of the positions that repeat; the bits of those where a `**/` begins.
        self._takes: list[str] = []
        self._repeated = self._folders = 0
        for piece in re.findall(r"\*\*/|\*\*|\[[^/]?[^]/]*\]|.", pattern, re.DOTALL):
            here = len(self._takes)
            takes, repeated = WILD.get(piece, ([piece.replace("[^", "[!")], 0))
            self._takes += takes
            self._repeated |= repeated << here
            self._folders |= (piece == "**/") << here
        self._end = 1 << len(self._takes)
        self._takers: dict[str, int] = {}

    def matches(self, path: str) -> bool:
        positions = self._with_skips(1)
        for letter in path:
            if letter == "/" and positions & self._end:
                return True  # the pattern names a folder that contains this path
            if letter not in self._takers:
                takers = [1 << at for at, what in enumerate(self._takes) if _takes(what, letter)]
                self._takers[letter] = sum(takers)
            taken = positions & self._takers[letter]
            positions = self._with_skips((taken & ~self._repeated) << 1 | taken & self._repeated)
            if not positions:
                return False
        return bool(positions & self._end)

    def _with_skips(self, positions: int) -> int:
        """These positions, and those that can be reached from them without a character."""
        before = 0
        while before != positions:
            before = positions
            positions |= (positions & self._repeated) << 1 | (positions & self._folders) << 3
        return positions


def _takes(what: str, letter: str) -> bool:
    if what == "**" or "/" in (what, letter):
        return what in ("**", letter)
    return fnmatch.fnmatchcase(letter, what)
