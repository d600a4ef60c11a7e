"""The table of keys: what each may hold, and what it is when nothing is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deborgen_shared.jobfile import file_values, kinds, limits, values
from deborgen_shared.jobfile.kinds import Check, Kind, shaped
from deborgen_shared.jobfile.model import Build, Checkpoint, Workspace
from deborgen_shared.jobfile.problems import Path, Problems
from deborgen_shared.jobfile.structure import record
from deborgen_shared.jobfile.sweep_checks import sweep
from deborgen_shared.jobfile.values import GIT_EXAMPLE


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the job file: the kind of its value, a sentence about it, and its default in words.

    `not_yet` is the end of the sentence that refuses a key which this version cannot execute.
    """

    name: str
    kind: Kind
    summary: str
    default: str = "none"
    not_yet: str = ""


RESOURCES = record(
    {
        "cpus": kinds.number(*limits.CPUS),
        "memory": kinds.size(*limits.MEMORY),
        "gpus": kinds.number(*limits.GPUS, whole=True),
        "disk": kinds.size(*limits.DISK),
    },
    "write for example {cpus: 2, memory: 4GiB}",
)
RETRY = record(
    {"program": kinds.boolean, "backoff": kinds.duration(*limits.BACKOFF)},
    "write for example {program: true, backoff: 10s}",
)
CHECKPOINT = record(
    {"path": file_values.inner_path, "every": kinds.duration(*limits.CHECKPOINT_EVERY)},
    "write for example {path: state/, every: 5m}",
    ("path",),
    Checkpoint,
)
BUILD = record(
    {
        "git": values.git_url,
        "ref": values.git_ref,
        "containerfile": file_values.inner_path,
        "tag": values.image,
    },
    f"write for example {{git: {GIT_EXAMPLE}, tag: solver}}",
    ("git", "tag"),
    Build,
)
_WORKSPACE = record(
    {"git": values.git_url, "ref": values.git_ref, "shared": values.shared_name},
    f"write for example {{git: {GIT_EXAMPLE}, ref: main}}",
)


@shaped(_WORKSPACE.shape | {"oneOf": [{"required": ["git"]}, {"required": ["shared"], "not": {"required": ["ref"]}}]})
def workspace(value: Any, path: Path, problems: Problems) -> Workspace | None:
    """A repository or a shared folder, and not both."""
    before = len(problems)
    done = _WORKSPACE.check(value, path, problems)
    if len(problems) > before:
        return None
    example = "write {git: URL, ref: main} or {shared: NAME}"
    if ("git" in done) == ("shared" in done):
        what = "both 'git' and 'shared'" if "git" in done else "neither 'git' nor 'shared'"
        problems.add(path, f"'workspace' has {what}", example)
    elif "shared" in done and "ref" in done:
        problems.add((*path, "ref"), "'ref' goes with 'git', not with 'shared'", example, key=True)
    else:
        return Workspace(**done)
    return None


KEYS: tuple[Key, ...] = (
    Key(
        "name", kinds.text(limits.NAME, "name: pendulum", templates=True),
        "What the run is called, in lists and in messages.", "the file's stem",
    ),
    Key(
        "run", values.run, "A script for the shell, or a list of arguments that is executed as it is.",
        "required, unless `build` or `steps` is given",
    ),
    Key(
        "image", values.image, "The container image that the job runs in.",
        "the coordinator's default image; without one, a plain process with limits",
    ),
    Key(
        "files", file_values.local_files,
        "Files and folders beside the job file, uploaded at submit and laid into the workspace.",
    ),
    Key(
        "workspace", workspace, "A repository to check out, or a folder that the worker's owner has mounted.",
        "an empty directory",
        not_yet="cannot be prepared by this version yet: name what the job needs in 'files'",
    ),
    Key("env", values.env, "Environment variables. Values are text, numbers or booleans."),
    Key(
        "secrets", values.secrets,
        "Names of secrets that the coordinator holds. Their values reach only the job's environment.",
        not_yet="cannot be given to jobs by this version yet",
    ),
    Key(
        "resources", RESOURCES, "What the job is given, and held to.",
        "`{cpus: 1, memory: 1GiB, gpus: 0, disk: 2GiB}`",
    ),
    Key(
        "requires", values.labels("write for example {os: linux, gpu: rtx*}"),
        "Labels that the worker must have. Values may use `*` and `?`.",
    ),
    Key(
        "network", kinds.choice("none", "internet"),
        "What the job may reach. Only workers whose owner allows it take `internet`.", "`none`",
    ),
    Key("timeout", kinds.duration(*limits.TIMEOUT), "How long one attempt may take.", "`1h`"),
    Key(
        "max_attempts", kinds.number(*limits.MAX_ATTEMPTS, whole=True), "Attempts in all, when infrastructure fails.",
        "the coordinator's `default_max_attempts`: `3` unless the pool's organiser sets another",
    ),
    Key(
        "retry", RETRY, "Whether a nonzero exit is tried again too, and how long to wait before the next attempt.",
        "`{program: false, backoff: 10s}`",
    ),
    Key("priority", kinds.number(*limits.PRIORITY, whole=True), "Higher goes first.", "`0`"),
    Key("artifacts", file_values.artifacts, "Globs in the workspace, collected when the job succeeds, or always."),
    Key(
        "result", file_values.result, "A file with a flat JSON object: its entries are columns of the results table.",
        "what the job writes to `$DEBORGEN_RESULT`",
    ),
    Key(
        "checkpoint", CHECKPOINT, "A path that is saved while the job runs and restored in its next attempt.",
        not_yet="cannot be saved and restored by this version yet",
    ),
    Key("labels", values.labels("write for example {project: thesis}"), "Free labels of the run, to find it by."),
    Key("sweep", sweep, "This job, once per combination of parameters."),
    Key(
        "build", BUILD, "An image to build from a repository.",
        not_yet="cannot be executed by this version yet: build the image and name it in 'image'",
    ),
)  # fmt: skip

#: Keys that describe the run as a whole, and do not stand in a step.
RUN_ONLY = ("labels",)
#: Keys of a step alone.
STEP_ONLY = ("id", "needs")


_BY_HAND: dict[str, Check] = {key.name: key.kind.check for key in KEYS}
#: The checks, by whether the document came over the wire.
TOP: dict[bool, dict[str, Check]] = {False: _BY_HAND, True: _BY_HAND | {"files": file_values.wire_files.check}}
STEP = {wire: {name: check for name, check in top.items() if name not in RUN_ONLY} for wire, top in TOP.items()}
NOT_YET: dict[str, str] = {key.name: key.not_yet for key in KEYS if key.not_yet}
#: Mappings of single settings: a step's are laid over the file's, setting by setting.
MERGED = ("env", "requires", "resources", "retry")
