"""The local files of a job file: which ones to upload, and their sizes.

A folder is uploaded with everything in it, except for the `.git` folder and for the files that `.gitignore` and
`.deborgenignore` exclude. Ignore files work as in git: deeper files take precedence, and the last matching line
decides. A file or folder that the job file names is always uploaded, even if an ignore file above it excludes it. A
pattern like `data/*.csv` selects among the files that would be uploaded if the job file named the folder `data`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

from deborgen_shared.jobfile.globs import Glob

IGNORE_FILES = (".gitignore", ".deborgenignore")
WILDCARDS = frozenset("*?[")


@dataclass(frozen=True)
class LocalFile:
    """One file to copy to `path` in the workspace."""

    path: str
    source: Path
    size: int
    mode: int
    sha256: str = ""


@dataclass
class Collection:
    """The files found, ordered by path, and a sentence for each entry that was skipped."""

    files: list[LocalFile] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


class FileMissing(Exception):
    """An entry of `files` that does not exist or cannot be read."""


def collect(base: Path, entry: str) -> Collection:
    """All files of an entry, relative to `base`. Raises FileMissing if it does not exist or cannot be read."""
    path = base / entry
    name = str(PurePosixPath(entry))
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if WILDCARDS & set(entry):
            return _matching(base, entry)
        raise FileMissing(f"{entry!r} does not exist") from None
    except OSError as why:
        raise FileMissing(f"{entry!r} cannot be read: {why.strerror}") from None
    if stat.S_ISREG(mode):
        return Collection([_local(name, path)])
    if not stat.S_ISDIR(mode):
        raise FileMissing(f"{entry!r} is neither a file nor a folder")
    collection = Collection()
    collection.files = sorted(_walk(base, path, name, collection.skipped), key=lambda file: file.path)
    return collection


def _matching(base: Path, pattern: str) -> Collection:
    """The files that a pattern like `data/*.csv` or `src/**/*.py` matches, except for what ignore files exclude."""
    parts = PurePosixPath(pattern).parts
    folder = PurePosixPath(*takewhile(lambda part: not WILDCARDS & set(part), parts))
    if not (base / folder).is_dir():
        raise FileMissing(f"{pattern!r} matches nothing")
    found, glob = collect(base, str(folder)), Glob(pattern)
    found.files = [file for file in found.files if glob.matches(file.path)]
    if not found.files:
        raise FileMissing(f"{pattern!r} matches nothing")
    return found


def _local(name: str, path: Path) -> LocalFile:
    status = path.stat()
    return LocalFile(name, path, status.st_size, 0o755 if status.st_mode & 0o100 else 0o644)


def _walk(base: Path, folder: Path, name: str, skipped: list[str]) -> Iterator[LocalFile]:
    # The ignore files between the job file and the folder apply to the folder too.
    specs: list[tuple[str, GitIgnoreSpec]] = []
    for above in reversed(PurePosixPath(name).parents):
        specs += _specs(base / above, str(above) if above.name else "")
    if name != "." and _ignored(name + "/", specs):
        specs = []  # the job file names the folder, so only the ignore files inside it apply
    yield from _descend(folder, "" if name == "." else name, specs, skipped)


def _descend(
    folder: Path, name: str, specs: list[tuple[str, GitIgnoreSpec]], skipped: list[str]
) -> Iterator[LocalFile]:
    specs = specs + _specs(folder, name)
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as why:
        raise FileMissing(f"{name or '.'!r} cannot be read: {why.strerror}") from None
    for entry in entries:
        path = f"{name}/{entry.name}" if name else entry.name
        if entry.is_dir(follow_symlinks=False):
            if entry.name != ".git" and not _ignored(path + "/", specs):
                yield from _descend(Path(entry.path), path, specs, skipped)
        elif entry.name == ".deborgenignore" or _ignored(path, specs):
            continue
        elif (kind := _kind(entry)) == "file":
            yield _local(path, Path(entry.path))
        else:
            skipped.append(f"{path} is {kind}")


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_file():
            return "file"
        return "a link to a folder" if entry.is_dir() else "not a regular file"
    except OSError as why:  # a link to itself
        return f"not readable: {why.strerror}"


def _specs(folder: Path, name: str) -> list[tuple[str, GitIgnoreSpec]]:
    found = []
    for ignore in IGNORE_FILES:
        try:
            lines = (folder / ignore).read_text("utf-8", errors="replace").splitlines()
        except OSError:
            continue
        found.append((name, GitIgnoreSpec.from_lines(lines)))
    return found


def _ignored(path: str, specs: list[tuple[str, GitIgnoreSpec]]) -> bool:
    for name, spec in reversed(specs):
        verdict = spec.check_file(path[len(name) + 1 :] if name else path).include
        if verdict is not None:
            return verdict
    return False
