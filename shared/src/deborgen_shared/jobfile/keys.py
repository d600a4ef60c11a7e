"""The table of keys: what each may hold, as a check and as a schema, and what it is when nothing is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deborgen_shared.jobfile import checks, file_values, limits, shapes, structure, values
from deborgen_shared.jobfile.checks import Check
from deborgen_shared.jobfile.model import Build, Checkpoint, Workspace
from deborgen_shared.jobfile.problems import Path, Problem, Problems
from deborgen_shared.jobfile.shapes import Shape
from deborgen_shared.jobfile.sweep_checks import sweep

GIT_EXAMPLE = "https://example.org/team/solver.git"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the job file: its check, its schema, a sentence about it, and its default in words.

    `not_yet` is the end of the sentence that refuses a key which this version cannot execute.
    """

    name: str
    check: Check
    shape: Shape
    summary: str
    default: str = "none"
    not_yet: str = ""


def _checks(fields: Mapping[str, tuple[Check, Shape]]) -> dict[str, Check]:
    return {name: check for name, (check, _) in fields.items()}


def _shape(fields: Mapping[str, tuple[Check, Shape]], required: tuple[str, ...] = ()) -> Shape:
    return shapes.record({name: shape for name, (_, shape) in fields.items()}, required)


RESOURCES: dict[str, tuple[Check, Shape]] = {
    "cpus": (checks.number(*limits.CPUS), shapes.number(*limits.CPUS)),
    "memory": (checks.size(*limits.MEMORY), shapes.SIZE),
    "gpus": (checks.integer(*limits.GPUS), shapes.integer(*limits.GPUS)),
    "disk": (checks.size(*limits.DISK), shapes.SIZE),
}
RETRY: dict[str, tuple[Check, Shape]] = {
    "program": (checks.boolean, {"type": "boolean"}),
    "backoff": (checks.duration(*limits.BACKOFF), shapes.DURATION),
}
CHECKPOINT: dict[str, tuple[Check, Shape]] = {
    "path": (file_values.inner_path, shapes.PATH),
    "every": (checks.duration(*limits.CHECKPOINT_EVERY), shapes.DURATION),
}
WORKSPACE: dict[str, tuple[Check, Shape]] = {
    "git": (values.git_url, shapes.GIT_URL),
    "ref": (values.git_ref, shapes.GIT_REF),
    "shared": (values.shared_name, shapes.SHARED),
}
BUILD: dict[str, tuple[Check, Shape]] = {
    "git": (values.git_url, shapes.GIT_URL),
    "ref": (values.git_ref, shapes.GIT_REF),
    "containerfile": (file_values.inner_path, shapes.PATH),
    "tag": (values.image, shapes.IMAGE),
}

_workspace = structure.record(_checks(WORKSPACE), f"{{git: {GIT_EXAMPLE}, ref: main}}")


def workspace(value: Any, path: Path, problems: Problems) -> Workspace | None:
    """A repository or a shared folder, and not both."""
    before = len(problems)
    done = _workspace(value, path, problems)
    if len(problems) > before:
        return None
    example = "write {git: URL, ref: main} or {shared: NAME}"
    if ("git" in done) == ("shared" in done):
        what = "both 'git' and 'shared'" if "git" in done else "neither 'git' nor 'shared'"
        problems.append(Problem(path, f"'workspace' has {what}", example))
    elif "shared" in done and "ref" in done:
        problems.append(Problem((*path, "ref"), "'ref' goes with 'git', not with 'shared'", example, key=True))
    else:
        return Workspace(**done)
    return None


def _make(check: Check, make: Callable[..., Any]) -> Check:
    """The record as a piece of the spec, once it has no problems."""

    def checked(value: Any, path: Path, problems: Problems) -> Any:
        before = len(problems)
        done = check(value, path, problems)
        return make(**done) if len(problems) == before else None

    return checked


KEYS: tuple[Key, ...] = (
    Key(
        "name",
        checks.text(limits.NAME, templates=True, example="name: pendulum"),
        shapes.text(limits.NAME),
        "What the run is called, in lists and in messages.",
        "the file's stem",
    ),
    Key(
        "run",
        values.run,
        shapes.RUN,
        "A script for the shell, or a list of arguments that is executed as it is.",
        "required, unless `build` or `steps` is given",
    ),
    Key(
        "image",
        values.image,
        shapes.IMAGE,
        "The container image that the job runs in.",
        "the coordinator's default image; without one, a constrained subprocess",
    ),
    Key(
        "files",
        file_values.local_files,
        shapes.LOCAL_FILES,
        "Files and folders beside the job file, uploaded at submit and laid into the workspace.",
    ),
    Key(
        "workspace",
        workspace,
        _shape(WORKSPACE) | {"oneOf": [{"required": ["git"]}, {"required": ["shared"], "not": {"required": ["ref"]}}]},
        "A repository to check out, or a folder that the worker's owner has mounted.",
        "an empty directory",
        not_yet="cannot be prepared by this version yet: name what the job needs in 'files'",
    ),
    Key("env", values.env, shapes.ENV, "Environment variables. Values are text, numbers or booleans."),
    Key(
        "secrets",
        values.secrets,
        shapes.SECRETS,
        "Names of secrets that the coordinator holds. Their values reach only the job's environment.",
        not_yet="cannot be given to jobs by this version yet",
    ),
    Key(
        "resources",
        structure.record(_checks(RESOURCES), "{cpus: 2, memory: 4GiB}"),
        _shape(RESOURCES),
        "What the job is given, and held to.",
        "`{cpus: 1, memory: 1GiB, gpus: 0, disk: 2GiB}`",
    ),
    Key(
        "requires",
        values.words(limits.LABELS, "{os: linux, gpu: rtx*}"),
        shapes.WORDS,
        "Labels that the worker must have. Values may use `*` and `?`.",
    ),
    Key(
        "network",
        checks.choice("none", "internet"),
        {"enum": ["none", "internet"]},
        "What the job may reach. Only workers whose owner allows it take `internet`.",
        "`none`",
    ),
    Key("timeout", checks.duration(*limits.TIMEOUT), shapes.DURATION, "How long one attempt may take.", "`1h`"),
    Key(
        "max_attempts",
        checks.integer(*limits.MAX_ATTEMPTS),
        shapes.integer(*limits.MAX_ATTEMPTS),
        "Attempts in all, when infrastructure fails.",
        "the coordinator's `default_max_attempts`: `3` unless the pool's organiser sets another",
    ),
    Key(
        "retry",
        structure.record(_checks(RETRY), "{program: true, backoff: 10s}"),
        _shape(RETRY),
        "Whether a nonzero exit is tried again too, and how long to wait before the next attempt.",
        "`{program: false, backoff: 10s}`",
    ),
    Key(
        "priority",
        checks.integer(*limits.PRIORITY),
        shapes.integer(*limits.PRIORITY),
        "Higher goes first.",
        "`0`",
    ),
    Key(
        "artifacts",
        file_values.artifacts,
        shapes.ARTIFACTS,
        "Globs in the workspace, collected when the job succeeds, or always.",
    ),
    Key(
        "result",
        file_values.result,
        shapes.PATH,
        "A file with a flat JSON object: its entries are columns of the results table.",
        "what the job writes to `$DEBORGEN_RESULT`",
    ),
    Key(
        "checkpoint",
        _make(structure.record(_checks(CHECKPOINT), "{path: state/, every: 5m}", ("path",)), Checkpoint),
        _shape(CHECKPOINT, ("path",)),
        "A path that is saved while the job runs and restored in its next attempt.",
        not_yet="cannot be saved and restored by this version yet",
    ),
    Key(
        "labels",
        values.words(limits.LABELS, "{project: thesis}"),
        shapes.WORDS,
        "Free labels of the run, to find it by.",
    ),
    Key("sweep", sweep, shapes.SWEEP, "This job, once per combination of parameters."),
    Key(
        "build",
        _make(structure.record(_checks(BUILD), f"{{git: {GIT_EXAMPLE}, tag: solver}}", ("git", "tag")), Build),
        _shape(BUILD, ("git", "tag")),
        "An image to build from a repository.",
        not_yet="cannot be executed by this version yet: build the image and name it in 'image'",
    ),
)

#: Keys that describe the run as a whole, and do not stand in a step.
RUN_ONLY = ("labels",)
#: Keys of a step alone.
STEP_ONLY = ("id", "needs")


def _table(wire: bool, step: bool) -> dict[str, Check]:
    table = {key.name: key.check for key in KEYS if not (step and key.name in RUN_ONLY)}
    if wire:
        table["files"] = file_values.wire_files
    return table


#: The checks, by whether the document came over the wire.
TOP: dict[bool, dict[str, Check]] = {wire: _table(wire, step=False) for wire in (False, True)}
STEP: dict[bool, dict[str, Check]] = {wire: _table(wire, step=True) for wire in (False, True)}
NOT_YET: dict[str, str] = {key.name: key.not_yet for key in KEYS if key.not_yet}
#: Mappings of single settings: a step's are laid over the file's, setting by setting.
MERGED = ("env", "requires", "resources", "retry")
