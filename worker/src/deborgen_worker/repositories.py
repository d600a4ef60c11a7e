"""The repository of an attempt: its commit, which is the same for the whole run, and its files in the workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.messages import Assignment
from deborgen_shared.repositories import git_label
from deborgen_shared.states import Cause
from deborgen_worker.git.access import Access, Remote
from deborgen_worker.git.checkout import Source, checkout
from deborgen_worker.git.command import GitFailed, Unwanted, is_installed
from deborgen_worker.git.mirrors import Mirrors
from deborgen_worker.runners.protocol import CannotStart, Unavailable
from deborgen_worker.settings import WorkerSettings

#: Tells the coordinator the commit that an attempt found for a ref of a repository, and returns the one that counts.
Pin = Callable[[Assignment, str, str, str], str]
#: Whether the attempt must still be prepared.
Wanted = Callable[[], bool]


@dataclass(frozen=True)
class Repositories:
    """What this worker does with repositories, within what its owner allows."""

    mirrors: Mirrors
    pin: Pin

    def commit_of(self, assignment: Assignment, spec: JobSpec, wanted: Wanted) -> str:
        """The commit for the attempt. Nothing is checked out before the coordinator knows it.

        Raises `Unavailable`, or `CannotStart` if the attempt is not wanted any more. A coordinator that does not answer
        is the caller's concern.
        """
        assert spec.repository is not None
        url, ref = spec.repository
        if assignment.commit:
            return assignment.commit
        try:
            found = self.mirrors.resolve(Remote(url, key_of(assignment, spec)), ref, wanted)
        except (GitFailed, Unwanted) as error:
            raise _failed(url, error) from None
        return self.pin(assignment, url, ref, found)

    def check_out(self, assignment: Assignment, spec: JobSpec, commit: str, folder: Path, wanted: Wanted) -> list[str]:
        """Write the files of the job's workspace into the folder. Returns the paths of its links, for `make_links`."""
        work = spec.source
        assert work is not None
        assert work.git is not None
        subdir = "" if spec.build is not None else (work.subdir or "").rstrip("/")  # the builder goes there itself
        source = Source(Remote(work.git, key_of(assignment, spec)), commit, subdir, work.submodules)
        try:
            return checkout(self.mirrors, source, folder, spec.resources.disk, wanted)
        except (GitFailed, Unwanted) as error:
            raise _failed(work.git, error) from None


def key_of(assignment: Assignment, spec: JobSpec) -> str:
    """The value of the secret that opens the job's repository; empty if it names none."""
    name = spec.source.key if spec.source is not None else None
    return assignment.secrets.get(name, "") if name else ""


def _failed(url: str, error: Exception) -> CannotStart:
    if isinstance(error, Unwanted):
        return CannotStart("the attempt was ended while its repository was fetched")
    return Unavailable(Cause.WORKSPACE, f"the repository {url} could not be checked out: {error}")


def make_repositories(settings: WorkerSettings, state: Path, memory: Path | None, pin: Pin) -> Repositories | None:
    """What the owner allows; None if this machine checks out no repositories. `memory` is a folder for keys."""
    if not (settings.git and settings.git_protocols and is_installed()):
        return None
    folder = state / "git"
    folder.mkdir(mode=0o700, exist_ok=True)
    access = Access(
        settings.git_protocols, settings.git_hosts, folder, memory or folder / "keys", settings.git_known_hosts
    )
    return Repositories(Mirrors(folder / "mirrors", settings.git_cache_size, settings.git_timeout, access), pin)


def labels(repositories: Repositories | None, settings: WorkerSettings) -> dict[str, bool]:
    """What the worker says about the repositories that it checks out."""
    protocols = settings.git_protocols if repositories is not None else frozenset[str]()
    return {"git": bool(protocols), **{git_label(protocol): True for protocol in sorted(protocols)}}
