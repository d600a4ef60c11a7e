"""Checks a commit out into a folder, as files without a repository around them.

The names and sizes are looked at before the first byte is written. Links are written as files first, with where they
lead as their content, so that nothing can be written through one. `make_links` then makes those that stay inside.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from deborgen_shared.jobfile.paths import OWN, check_path, fold
from deborgen_shared.jobfile.units import format_size
from deborgen_shared.repositories import relative_address
from deborgen_shared.terminal import inert
from deborgen_worker.git.access import Remote, same_server
from deborgen_worker.git.command import GitFailed, LimitReached, Limits, git
from deborgen_worker.git.mirrors import Mirrors

MOST_FILES = 200_000
MOST_SUBMODULES, SUBMODULE_LEVELS = 100, 5
#: Where a link leads takes at most this many bytes.
LINK_BYTES = 4096
LISTING_BYTES = 256 << 20
_LINK, _SUBMODULE = "120000", "160000"


@dataclass(frozen=True)
class Source:
    """What is checked out: a commit of a remote or only a folder in it, and whether with its submodules."""

    remote: Remote
    commit: str
    subdir: str = ""
    submodules: bool = False


class _Entry(NamedTuple):
    mode: str
    name: str
    size: int
    path: str


@dataclass
class _Room:
    """What is left for the rest of a checkout."""

    bytes: int
    files: int = MOST_FILES
    submodules: int = MOST_SUBMODULES


def checkout(
    mirrors: Mirrors, source: Source, folder: Path, most_bytes: int, wanted: Callable[[], bool] = lambda: True
) -> list[str]:
    """Write the files of a commit into the folder, which exists. Returns the paths of its links, for `make_links`.

    Raises `GitFailed` with the reason, or `Unwanted`. What was written until then stays.
    """
    links: list[str] = []
    _write(mirrors, source, folder, "", _Room(most_bytes), links, 0, wanted)
    used = sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file())
    if used > most_bytes:  # a change of the encoding makes a file larger than it is in the repository
        raise LimitReached(f"the checkout needs more than {format_size(most_bytes)}, the job's disk")
    return links


def _write(
    mirrors: Mirrors, source: Source, folder: Path, inside: str, room: _Room, links: list[str], level: int,
    wanted: Callable[[], bool],
) -> None:  # fmt: skip
    (folder / inside).mkdir(parents=True, exist_ok=True)
    try:
        entries, named = _write_one(mirrors, source, folder / inside, room, wanted)
    except _Damaged:
        entries, named = _write_one(mirrors, source, folder / inside, room, wanted)
    prefix = f"{inside}/" if inside else ""
    links += [prefix + each.path for each in entries if each.mode == _LINK]
    for each in entries if source.submodules else ():
        if each.mode == _SUBMODULE:
            path = f"{source.subdir}/{each.path}" if source.subdir else each.path
            _write(mirrors, _submodule(mirrors, source, path, each.name, named, room, level), folder,
                   prefix + each.path, room, links, level + 1, wanted)  # fmt: skip


def _write_one(
    mirrors: Mirrors, source: Source, target: Path, room: _Room, wanted: Callable[[], bool]
) -> tuple[list[_Entry], dict[str, str]]:
    """Write the files of one repository. Returns its entries, and the URLs of its submodules.

    If the mirror proves to be damaged, it is removed."""
    with mirrors.commit(source.remote, source.commit, wanted) as mirror:
        inode = mirror.stat().st_ino
        try:
            entries = _list(mirror, source, mirrors.limits)
            _check(entries, room)
            _write_files(mirror, source, target, mirrors.limits, wanted)
        except (LimitReached, _Unfit):
            raise
        except GitFailed as failed:
            mirrors.forget(mirror, inode)
            raise _Damaged(str(failed)) from None
        room.files -= len(entries)
        room.bytes -= sum(each.size for each in entries)
        return entries, _submodules(mirror, source, mirrors.limits) if source.submodules else {}


class _Unfit(GitFailed):
    """What is in the repository is not what the job needs, or is not for a folder of this machine."""


class _Damaged(GitFailed):
    """The mirror lacks what it must have."""


def _tree(source: Source) -> str:
    return f"{source.commit}:{source.subdir}" if source.subdir else f"{source.commit}^{{tree}}"


def _list(mirror: Path, source: Source, limits: Limits) -> list[_Entry]:
    """Everything in the commit."""
    at, tree = f"--git-dir={mirror}", _tree(source)
    if source.subdir:
        git([at, "cat-file", "-e", f"{source.commit}^{{tree}}"], limits)
        try:
            kind = git([at, "cat-file", "-t", tree], limits).strip()
        except GitFailed:
            kind = b""
        if kind != b"tree":
            raise _Unfit(f"the repository has no folder {source.subdir!r} at this commit")
    found = []
    for line in git([at, "ls-tree", "-r", "-l", "-z", tree], Limits(limits.seconds, LISTING_BYTES)).split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        mode, _, name, size = about.decode().split()
        found.append(_Entry(mode, name, 0 if size == "-" else int(size), path.decode("utf-8", "surrogateescape")))
    return found


def _check(entries: Sequence[_Entry], room: _Room) -> None:
    """Refuse what does not fit, or has names that are not for a folder of this machine."""
    if len(entries) > room.files:
        raise LimitReached(f"the repository has more than {MOST_FILES:,} files")
    if sum(each.size for each in entries) > room.bytes:
        raise LimitReached("the checkout does not fit on the job's disk: ask for more with resources: {disk: ...}")
    for each in entries:
        problem = check_path(each.path)
        if not each.path.isprintable():
            problem = "has characters that do not print"
        elif fold(each.path.partition("/")[0]) == OWN:
            problem = "has a name that belongs to deborgen"
        elif ".git" in fold(each.path).split("/"):
            problem = "has a name that belongs to git"
        if problem:
            raise _Unfit(f"the path '{inert(each.path)[:200]}' in the repository {problem}")


def _write_files(mirror: Path, source: Source, target: Path, limits: Limits, wanted: Callable[[], bool]) -> None:
    with tempfile.TemporaryDirectory(dir=mirror.parent, prefix=".gone-index-") as place:
        env = {"GIT_INDEX_FILE": f"{place}/index"}
        at = [f"--git-dir={mirror}", f"--work-tree={target}"]
        git([*at, "read-tree", _tree(source)], limits, env=env, wanted=wanted)
        git([*at, "checkout-index", "-a", "-f", "-q"], limits, env=env, wanted=wanted)


def _submodules(mirror: Path, source: Source, limits: Limits) -> dict[str, str]:
    """The URL of each submodule, by its path in the repository."""
    arguments = [
        f"--git-dir={mirror}",
        "config",
        "--no-includes",
        "--blob",
        f"{source.commit}:.gitmodules",
        "-z",
        "--list",
    ]
    try:
        text = git(arguments, Limits(limits.seconds, 1 << 20)).decode(errors="replace")
    except GitFailed:
        return {}
    values = dict(line.partition("\n")[::2] for line in text.split("\0"))
    names = [key.removesuffix(".path") for key in values if key.startswith("submodule.") and key.endswith(".path")]
    return {values[f"{name}.path"]: values[f"{name}.url"] for name in names if f"{name}.url" in values}


def _submodule(
    mirrors: Mirrors, source: Source, path: str, commit: str, named: dict[str, str], room: _Room, level: int
) -> Source:
    """The source of a submodule. Its URL is checked like every URL, and gets the key only on the same server."""
    shown = inert(path)[:200]
    room.submodules -= 1
    if room.submodules < 0 or level >= SUBMODULE_LEVELS:
        raise GitFailed(f"there are more than {MOST_SUBMODULES} submodules, or {SUBMODULE_LEVELS} levels of them")
    if path not in named:
        raise GitFailed(f"the submodule {shown!r} has no URL in .gitmodules")
    try:
        url = relative_address(mirrors.check(source.remote.url), named[path])
        mirrors.check(url)
    except GitFailed as failed:
        raise GitFailed(f"the submodule {shown!r}: {failed}") from None
    key = source.remote.key if same_server(source.remote.url, url) else ""
    return Source(Remote(url, key), commit, submodules=True)


def make_links(folder: Path, links: Collection[str], others: Collection[str] = ()) -> None:
    """Make the links of a checkout that lead to something inside the folder. The rest stay files.

    `others` are paths at which other files were laid over the checkout. Nothing may be written here afterwards.
    """
    made: dict[Path, bytes] = {}
    for each in set(links) - set(others):
        path = folder / each
        leads = _content(path)
        if leads is not None:
            path.unlink()
            path.symlink_to(os.fsdecode(leads))
            made[path] = leads
    root = os.path.realpath(folder)
    while outside := [path for path in made if not _stays_inside(path, root)]:
        for path in outside:  # a link may lead through another one, so look again
            path.unlink()
            path.write_bytes(made.pop(path))


def _content(path: Path) -> bytes | None:
    """Where a link leads, from the file that stands for it; None if it cannot be a link that stays inside."""
    with contextlib.suppress(OSError):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= LINK_BYTES:
            leads = path.read_bytes()
            if leads and not leads.startswith(b"/") and b"\0" not in leads:
                return leads
    return None


def _stays_inside(link: Path, root: str) -> bool:
    return os.path.realpath(link).startswith(f"{root}/")
