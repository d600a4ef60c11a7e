"""The meaning of a job file: a run of steps, each with the immutable spec of its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import Struct

from deborgen_shared.jobfile.limits import GIB
from deborgen_shared.jobfile.problems import Path, Problem
from deborgen_shared.jobfile.sweep import Sweep
from deborgen_shared.jobfile.template import Scalar
from deborgen_shared.repositories import git_label, parse_address, shared_label
from deborgen_shared.states import RunAs

#: `max_attempts` of a stored spec that lacks it. A coordinator of release 0.1 stored such specs, and their jobs keep
#: their single attempt. Newer coordinators record the pool's default when a run is submitted.
OLD_MAX_ATTEMPTS = 1
#: The branch of a repository, unless the job file names another ref.
MAIN = "main"

_sorted_json = msgspec.json.Encoder(order="sorted")


class File(Struct, frozen=True, kw_only=True):
    """An input file: its path in the workspace, and the blob with its content."""

    path: str
    sha256: str
    size: int
    mode: int = 0o644


class JobResources(Struct, frozen=True, kw_only=True):
    """The resources that the job gets and may not exceed. Memory and disk are in bytes."""

    cpus: float = 1.0
    memory: int = GIB
    gpus: int = 0
    disk: int = 2 * GIB


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How to retry. Infrastructure failures are retried anyway; with `program`, failures of the program are too.

    `backoff` is the number of seconds to wait before a retry.
    """

    program: bool = False
    backoff: float = 10.0


class ArtifactPattern(Struct, frozen=True, kw_only=True):
    """A glob in the workspace, and when it is collected."""

    path: str
    when: Literal["success", "always"] = "success"


class Workspace(Struct, frozen=True, kw_only=True):
    """A repository to check out, or a folder that the worker's owner shares.

    `key` is the name of the secret that opens the repository. `commit` is what `ref` was when the job file was sent.
    The coordinator pins it for the run, and does not store it here.
    """

    git: str | None = None
    ref: str = MAIN
    commit: str | None = None
    subdir: str | None = None
    submodules: bool = False
    key: str | None = None
    shared: str | None = None
    write: bool = False


class SavedPath(Struct, frozen=True, kw_only=True):
    """The `checkpoint` of a job: a path that is saved every `every` seconds, and restored in the next attempt."""

    path: str
    every: float = 300.0


class Build(Struct, frozen=True, kw_only=True):
    """An image to build, from a repository or, without `git`, from the job's files.

    `tag` is the image's name and tag in the pool. With `push`, the image goes to the pool's registry if there is one.
    """

    tag: str
    git: str | None = None
    ref: str = MAIN
    subdir: str | None = None
    submodules: bool = False
    key: str | None = None
    containerfile: str = "Containerfile"
    target: str = ""
    args: dict[str, str] = msgspec.field(default_factory=dict)
    platform: str = ""
    push: bool = True


class Repeat(Struct, frozen=True, kw_only=True):
    """Repeat the job until the check `until` succeeds, at most `most` times."""

    until: str | list[str]
    most: int


class JobSpec(Struct, frozen=True, kw_only=True):
    """Everything that the jobs of one step have in common. Durations are in seconds, sizes in bytes.

    `run` is a shell script or a list of arguments; it is empty if `build` is given.
    """

    name: str = "job"
    run: str | list[str] = ""
    image: str | None = None
    files: list[File] = msgspec.field(default_factory=list)
    workspace: Workspace | None = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    secrets: list[str] = msgspec.field(default_factory=list)
    resources: JobResources = JobResources()
    requires: dict[str, str] = msgspec.field(default_factory=dict)
    network: Literal["none", "internet"] = "none"
    timeout: float = 3600.0
    watchdog: float | None = None
    max_attempts: int = OLD_MAX_ATTEMPTS
    retry: RetryPolicy = RetryPolicy()
    priority: int = 0
    artifacts: list[ArtifactPattern] = msgspec.field(default_factory=list)
    result: str | None = None
    checkpoint: SavedPath | None = None
    repeat: Repeat | None = None
    build: Build | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def runner(self) -> RunAs:
        return RunAs.BUILD if self.build else RunAs.CONTAINER if self.image else RunAs.PROCESS

    @property
    def repository(self) -> tuple[str, str] | None:
        """The URL and the ref of the repository that the job needs."""
        source = self.source
        return (source.git, source.ref) if source is not None and source.git else None

    @property
    def source(self) -> Workspace | Build | None:
        """What names the repository of the job, if it has one."""
        return self.build if self.build is not None else self.workspace

    @property
    def all_secrets(self) -> list[str]:
        """The secrets that the job needs: those of its environment, and the key of its repository."""
        key = self.source.key if self.source is not None else None
        return [*self.secrets, *([key] if key and key not in self.secrets else [])]

    @property
    def offers(self) -> dict[str, str]:
        """The labels of its owner's offers that the worker must have, each with its value."""
        if self.repository is not None:
            return {git_label(parse_address(self.repository[0]).protocol): "true"}
        if self.workspace is None:
            return {}
        return {shared_label(self.workspace.shared or ""): "write" if self.workspace.write else "read"}

    def needs_key(self) -> str:
        """Canonical JSON of everything that placement depends on. Jobs with the same key fit the same workers."""
        needs = {name: getattr(self, name) for name in ("network", "requires", "resources", "runner")}
        if self.all_secrets:
            needs["secrets"] = sorted(self.all_secrets)
        if self.offers:
            needs["offers"] = self.offers
        return _sorted_json.encode(needs).decode()


def jobs_per_point(repeat: Repeat | None) -> int:
    """How many jobs each combination of parameters may get: in a loop, one of work and one check per round."""
    return 2 * repeat.most if repeat else 1


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the spec that its jobs share, and the parameters in which they differ.

    `id` is None for the only step of a file without `steps`. `needs` has the ids of the steps that must succeed first.
    `local_files` are the files named in a hand-written job file that have not been uploaded yet. `path` is the step's
    place in the document.
    """

    id: str | None
    needs: list[str]
    spec: JobSpec
    sweep: Sweep | None = None
    local_files: list[str] = field(default_factory=list)
    path: Path = ()

    @property
    def count(self) -> int:
        """How many jobs the step has."""
        return self.sweep.count if self.sweep else 1

    def params(self) -> Iterator[dict[str, Scalar]]:
        """The parameters of each job in turn, generated lazily."""
        return self.sweep.params() if self.sweep else iter([{}])


@dataclass(frozen=True, slots=True)
class JobFile:
    """One run. Its jobs are numbered from 1, step by step.

    `not_yet` has one problem per key that this version checks but does not support. Such a run is not accepted.
    """

    name: str
    labels: dict[str, str]
    priority: int
    steps: list[Step]
    not_yet: list[Problem] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many jobs the run has when it is submitted. A loop adds further ones round by round."""
        return sum(step.count for step in self.steps)

    @property
    def most(self) -> int:
        """How many jobs the run may get, if no loop ends before its last round."""
        return sum(step.count * jobs_per_point(step.spec.repeat) for step in self.steps)
