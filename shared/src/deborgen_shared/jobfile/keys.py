"""The table of keys: what each may hold, how it is checked, and what it is when nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deborgen_shared.jobfile import checks, limits, values
from deborgen_shared.jobfile.checks import Check, Problems
from deborgen_shared.jobfile.model import Build, Checkpoint, Resources, Retry, Workspace
from deborgen_shared.jobfile.problems import Path, Problem
from deborgen_shared.jobfile.sweep_checks import sweep


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the job file. `default` is what the docs say; `not_yet` is the sentence when it is not executed."""

    name: str
    check: Check
    summary: str
    default: str = "none"
    not_yet: str = ""


RESOURCES: dict[str, Check] = {
    "cpus": checks.number(*limits.CPUS),
    "memory": checks.size(*limits.MEMORY),
    "gpus": checks.integer(*limits.GPUS),
    "disk": checks.size(*limits.DISK),
}
RETRY: dict[str, Check] = {"program": checks.boolean, "backoff": checks.duration(*limits.BACKOFF)}
CHECKPOINT: dict[str, Check] = {"path": values.inner_path, "every": checks.duration(*limits.CHECKPOINT_EVERY)}
WORKSPACE: dict[str, Check] = {"git": values.git_url, "ref": values.git_ref, "shared": values.shared_name}
BUILD: dict[str, Check] = {
    "git": values.git_url,
    "ref": values.git_ref,
    "containerfile": values.inner_path,
    "tag": values.image_tag,
}

_workspace = checks.record(WORKSPACE, "{git: https://example.org/team/solver.git, ref: main}")


def _make(check: Check, make: Callable[..., Any]) -> Check:
    """The record as a piece of the spec, once it has no problems."""

    def checked(value: Any, path: Path, problems: Problems) -> Any:
        before = len(problems)
        done = check(value, path, problems)
        return make(**done) if len(problems) == before else None

    return checked


def workspace(value: Any, path: Path, problems: Problems) -> Any:
    before = len(problems)
    done = _workspace(value, path, problems)
    if len(problems) == before:
        example = "write {git: URL, ref: main} or {shared: NAME}"
        if ("git" in done) == ("shared" in done):
            what = "both 'git' and 'shared'" if "git" in done else "neither 'git' nor 'shared'"
            problems.append(Problem(path, f"'workspace' has {what}", example))
        elif "shared" in done and "ref" in done:
            problems.append(Problem((*path, "ref"), "'ref' goes with 'git', not with 'shared'", example, key=True))
        else:
            return Workspace(**done)
    return None


KEYS: tuple[Key, ...] = (
    Key(
        "name",
        checks.text(limits.NAME, templates=True, example="pendulum"),
        "What the run is called",
        "the file's stem",
    ),
    Key("run", values.run, "A script for the shell, or a list of arguments that is executed as it is"),
    Key("image", values.image, "The container image", "the coordinator's default image, if it has one"),
    Key("files", values.local_files, "Files and folders that are uploaded and laid into the workspace"),
    Key(
        "workspace",
        workspace,
        "A repository to check out, or a shared folder",
        "an empty directory",
        not_yet="cannot be prepared by this version yet: name the files in 'files' instead",
    ),
    Key("env", values.env, "Environment variables"),
    Key(
        "secrets",
        values.secrets,
        "Names of secrets that reach the job's environment",
        not_yet="cannot be given to jobs by this version yet",
    ),
    Key(
        "resources",
        checks.record(RESOURCES, "{cpus: 2, memory: 4GiB}"),
        "What the job is given, and held to",
        "{cpus: 1, memory: 1GiB, gpus: 0, disk: 2GiB}",
    ),
    Key("requires", values.words(limits.LABELS, "{os: linux, gpu: rtx*}"), "Labels that the worker must have"),
    Key("network", checks.choice("none", "internet"), "What the job may reach", "none"),
    Key("timeout", checks.duration(*limits.TIMEOUT), "How long one attempt may take", "1h"),
    Key("max_attempts", checks.integer(*limits.MAX_ATTEMPTS), "Attempts in all, when infrastructure fails", "1"),
    Key(
        "retry",
        checks.record(RETRY, "{program: true, backoff: 10s}"),
        "How it is tried again",
        "{program: false, backoff: 10s}",
    ),
    Key("priority", checks.integer(*limits.PRIORITY), "Higher goes first", "0"),
    Key("artifacts", values.artifacts, "Globs in the workspace that are collected"),
    Key(
        "result",
        values.result,
        "A flat JSON object: columns of the results table",
        "what the job writes to $DEBORGEN_RESULT",
    ),
    Key(
        "checkpoint",
        _make(checks.record(CHECKPOINT, "{path: state/, every: 5m}", ("path",)), Checkpoint),
        "Saved while the job runs, restored in its next attempt",
        not_yet="cannot be saved by this version yet",
    ),
    Key("labels", values.words(limits.LABELS, "{project: thesis}"), "Free labels of the run, to find it by"),
    Key("sweep", sweep, "This job, once per combination"),
    Key(
        "build",
        _make(checks.record(BUILD, "{git: https://example.org/team/solver.git, tag: solver}", ("git", "tag")), Build),
        "An image from a repository",
        not_yet="cannot be executed by this version yet: build the image yourself and name it in 'image'",
    ),
)

#: Keys that describe the run as a whole, and do not stand in a step.
RUN_ONLY = ("labels",)


def _table(wire: bool, step: bool) -> dict[str, Check]:
    table = {key.name: key.check for key in KEYS if not (step and key.name in RUN_ONLY)}
    if wire:
        table["files"] = values.wire_files
    return table


#: The checks by whether the document came over the wire.
TOP: dict[bool, dict[str, Check]] = {wire: _table(wire, step=False) for wire in (False, True)}
STEP: dict[bool, dict[str, Check]] = {wire: _table(wire, step=True) for wire in (False, True)}
NOT_YET: dict[str, str] = {key.name: key.not_yet for key in KEYS if key.not_yet}
MERGED: dict[str, Callable[..., Any]] = {"env": dict, "requires": dict, "resources": Resources, "retry": Retry}
