"""A bare mirror of each repository, within a disk budget. Commits that are missing are fetched, each once.

A mirror has complete commits only: a commit gets its ref when all of it has arrived. What a killed fetch has left
behind is removed before the next one, and a mirror that turns out to be damaged is made again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deborgen_shared.jobfile.units import format_size
from deborgen_shared.repositories import Address, commit_among, is_commit, ref_patterns
from deborgen_worker.git.access import Access, Remote, fingerprint
from deborgen_worker.git.command import GitFailed, LimitReached, Limits, Unwanted, git, remove_leftovers

Wanted = Callable[[], bool]
#: A listing of refs has at most this many bytes.
LISTING_BYTES = 64 << 20
#: With more packs than this, a mirror is made again, because each fetch adds one.
MOST_PACKS = 50
_USED, _GONE = "used", ".gone-"
#: With these words a server refuses a commit that is not the newest of a branch.
_NOT_OFFERED = ("not our ref", "unadvertised object", "not advertised")


@dataclass
class _Flight:
    """Something that one thread does, and that others wait for."""

    wanted: list[Wanted] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    found: Any = None
    error: Exception | None = None

    def is_wanted(self) -> bool:
        return any(each() for each in list(self.wanted))


class Mirrors:
    """The mirrors of one worker, in one folder. All methods may be called from any thread."""

    def __init__(self, folder: Path, budget: int, seconds: float, access: Access) -> None:
        self._folder, self._budget, self._access = folder, budget, access
        self.limits = Limits(seconds, budget)
        self._lock = threading.Lock()
        self._flights: dict[tuple[str, ...], _Flight] = {}
        #: Each mirror that is in use, and by how many.
        self._users: dict[str, int] = {}
        self._fetching: dict[str, threading.Lock] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for each in folder.glob(f"{_GONE}*"):
            shutil.rmtree(each, ignore_errors=True)

    def check(self, url: str) -> Address:
        """The parts of a URL. Raises `GitFailed` if this machine may not contact it."""
        return self._access.check(url)[0]

    def resolve(self, remote: Remote, ref: str, wanted: Wanted = lambda: True) -> str:
        """The commit that a branch or a tag is now. Raises `GitFailed`, or `Unwanted`."""
        if is_commit(ref):
            return ref
        found = self._once(
            ("resolve", fingerprint(remote), ref), lambda flight: self._list(remote, ref, flight), wanted
        )
        return str(found)

    def _list(self, remote: Remote, ref: str, flight: _Flight) -> str:
        limits = Limits(self.limits.seconds, LISTING_BYTES)
        with self._access.way(remote) as way:
            arguments = ["ls-remote", "-q", "--", remote.url, *ref_patterns(ref)]
            listing = git(arguments, limits, env=way.env, wanted=flight.is_wanted)
        commit = commit_among(listing.decode(errors="replace"), ref)
        if commit is None:
            raise GitFailed(f"the repository has no branch and no tag {ref!r}")
        return commit

    @contextlib.contextmanager
    def commit(self, remote: Remote, commit: str, wanted: Wanted = lambda: True) -> Iterator[Path]:
        """A mirror that has this commit. It stays as long as the block does. Raises `GitFailed`, or `Unwanted`."""
        name = f"{fingerprint(remote)}-{len(commit)}"
        with self._in_use(name) as mirror:
            if not self._has(mirror, commit):
                self._once(("fetch", name, commit), lambda flight: self._fetch(mirror, remote, commit, flight), wanted)
            with contextlib.suppress(OSError):
                (mirror / _USED).touch()
            yield mirror

    def forget(self, mirror: Path, inode: int = 0) -> None:
        """Remove a mirror, or only if it still has this inode: the next one who needs it makes it again."""
        with contextlib.suppress(OSError):
            if inode and mirror.stat().st_ino != inode:
                return  # another thread has made it again already
            gone = self._folder / f"{_GONE}{mirror.name}-{os.urandom(4).hex()}"
            mirror.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _once(self, key: tuple[str, ...], work: Callable[[_Flight], Any], wanted: Wanted) -> Any:
        """What `work` returns. If another thread is doing the same already, wait for that, and share its outcome."""
        with self._lock:
            flight = self._flights.get(key)
            leads = flight is None or not flight.is_wanted()
            if flight is None or leads:
                flight = self._flights[key] = _Flight()
            flight.wanted.append(wanted)
        if leads:
            try:
                flight.found = work(flight)
            except Exception as error:
                flight.error = error
            finally:
                with self._lock:
                    if self._flights.get(key) is flight:
                        del self._flights[key]
                flight.ended.set()
        while not flight.ended.wait(0.1):
            if not wanted():
                raise Unwanted
        if isinstance(flight.error, Unwanted) and wanted():
            return self._once(key, work, wanted)
        if flight.error is not None:
            raise flight.error
        return flight.found

    @contextlib.contextmanager
    def _in_use(self, name: str) -> Iterator[Path]:
        with self._lock:
            self._users[name] = self._users.get(name, 0) + 1
        try:
            yield self._folder / name
        finally:
            with self._lock:
                self._users[name] -= 1
                if not self._users[name]:
                    del self._users[name]

    @staticmethod
    def _ref(commit: str) -> str:
        return f"refs/deborgen/{commit}"

    def _has(self, mirror: Path, commit: str) -> bool:
        return (mirror / self._ref(commit)).is_file()

    def _fetch(self, mirror: Path, remote: Remote, commit: str, flight: _Flight) -> None:
        with self._lock:
            one_at_a_time = self._fetching.setdefault(mirror.name, threading.Lock())
        with one_at_a_time, self._access.way(remote) as way:
            if self._has(mirror, commit):
                return
            self._make(mirror, commit)
            arguments = [
                f"--git-dir={mirror}", "fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
                "--no-auto-maintenance", "--force",
            ]  # fmt: skip
            wanted = f"+{commit}:{self._ref(commit)}"
            try:
                try:
                    git([*arguments, "--depth=1", "--", remote.url, wanted], self.limits, env=way.env,
                        wanted=flight.is_wanted)  # fmt: skip
                except GitFailed as failed:
                    self._check_limit(mirror)
                    if not any(words in str(failed) for words in _NOT_OFFERED):
                        raise
                    self._fetch_branches(mirror, arguments, remote, way.env, flight)
                    try:
                        git([f"--git-dir={mirror}", "update-ref", self._ref(commit), commit], self.limits)
                    except GitFailed:
                        raise failed from None
            finally:
                remove_leftovers(mirror)
                self._keep_budget(mirror)
            if not self._has(mirror, commit):
                raise self._too_large()

    def _check_limit(self, mirror: Path) -> None:
        """Git does not say that a pack has reached the limit, but what there is of it is as large as the limit."""
        if any(each.stat().st_size >= self._budget - 4096 for each in mirror.glob("objects/pack/tmp_pack_*")):
            raise self._too_large()

    def _too_large(self) -> LimitReached:
        return LimitReached(f"the repository needs more than {format_size(self._budget)}, the owner's limit")

    def _fetch_branches(
        self, mirror: Path, arguments: list[str], remote: Remote, env: dict[str, str], flight: _Flight
    ) -> None:
        """Fetch all branches, for a server that gives no single commit."""
        every = "+refs/heads/*:refs/remote/heads/*"
        git([*arguments, "--", remote.url, every], self.limits, env=env, wanted=flight.is_wanted)

    def _make(self, mirror: Path, commit: str) -> None:
        """Make the mirror, or clean it. One that has grown too large is made again, unless somebody reads it."""
        with self._lock:
            alone = self._users.get(mirror.name, 0) <= 1
        packs = sum(1 for _ in mirror.glob("objects/pack/*.pack"))
        if alone and (packs > MOST_PACKS or _size(mirror) > self._budget // 2):
            self.forget(mirror)
        if (mirror / "HEAD").exists():
            remove_leftovers(mirror)
            return
        shutil.rmtree(mirror, ignore_errors=True)
        kind = "sha256" if len(commit) == 64 else "sha1"
        git(["init", "-q", "--bare", "--template=", f"--object-format={kind}", "--", str(mirror)], self.limits)

    def _keep_budget(self, newest: Path) -> None:
        """Remove the least recently used mirrors until the rest is within the budget, but none that is in use. If the
        newest alone is larger, it goes too."""
        found = []
        for each in self._folder.iterdir():
            if not each.name.startswith(_GONE):
                found.append((_last_used(each), _size(each), each))
        total = sum(size for _, size, _ in found)
        for _, size, each in sorted(found):
            with self._lock:
                is_used = each.name in self._users
            if total > self._budget and (not is_used or (each == newest and size > self._budget)):
                self.forget(each)
                total -= size


def _last_used(mirror: Path) -> float:
    try:
        return (mirror / _USED).stat().st_mtime
    except OSError:
        return 0.0


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{place}/{name}").st_size
    return total
