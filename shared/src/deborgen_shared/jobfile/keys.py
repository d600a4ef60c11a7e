"""The table of keys: the allowed values of each, and its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deborgen_shared.jobfile import file_values, kinds, limits, values
from deborgen_shared.jobfile.kinds import Check, ValueKind
from deborgen_shared.jobfile.model import Build, Repeat, SavedPath, Workspace
from deborgen_shared.jobfile.problems import Path, Problems
from deborgen_shared.jobfile.structure import record
from deborgen_shared.jobfile.sweep_checks import sweep
from deborgen_shared.jobfile.values import GIT_EXAMPLE


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the job file: the kind of its value, a sentence about it, and its default in words.

    `not_yet` is set if this version does not support the key: it is the end of the message that refuses it.
    """

    name: str
    kind: ValueKind
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
    {"path": file_values.state_path, "every": kinds.duration(*limits.CHECKPOINT_EVERY)},
    "write for example {path: state/, every: 5m}",
    ("path",),
    SavedPath,
)
REPEAT = record(
    {"until": values.run, "most": kinds.number(*limits.ROUNDS, whole=True)},
    "write for example {until: python good_enough.py, most: 20}",
    ("until", "most"),
    Repeat,
)
_GIT: dict[str, ValueKind] = {
    "git": values.git_url,
    "ref": values.git_ref,
    "subdir": file_values.inner_path,
    "submodules": kinds.boolean,
    "key": values.secret,
}
BUILD = record(
    {
        **_GIT,
        "containerfile": file_values.inner_path,
        "target": values.stage,
        "args": values.build_args,
        "tag": values.image_tag,
        "platform": values.platform,
        "push": kinds.boolean,
    },
    f"write for example {{git: {GIT_EXAMPLE}, tag: solver}}",
    ("tag",),
    Build,
)
_SHARED: dict[str, ValueKind] = {"shared": values.shared_name, "write": kinds.boolean}
_WORKSPACE_EXAMPLE = "write {git: URL, ref: main} or {shared: NAME}"


def _workspace(git: dict[str, ValueKind]) -> ValueKind:
    """Either a repository or a shared folder. Each has keys of its own."""
    either = record({**git, **_SHARED}, f"write for example {{git: {GIT_EXAMPLE}, ref: main}}")

    def check(value: Any, path: Path, problems: Problems) -> Workspace | None:
        before = len(problems)
        done = either.check(value, path, problems)
        if len(problems) > before:
            return None
        if ("git" in done) == ("shared" in done):
            what = "both 'git' and 'shared'" if "git" in done else "neither 'git' nor 'shared'"
            problems.add(path, f"'workspace' has {what}", _WORKSPACE_EXAMPLE)
            return None
        own, other = ("git", "shared") if "git" in done else ("shared", "git")
        for key in done:
            if key in (_SHARED if own == "git" else git):
                message = f"'{key}' goes with '{other}', not with '{own}'"
                problems.add((*path, key), message, _WORKSPACE_EXAMPLE, key=True)
        return Workspace(**done) if len(problems) == before else None

    def shape(fields: dict[str, ValueKind], key: str) -> dict[str, Any]:
        return record(fields, "", (key,)).shape

    return ValueKind(check, {"oneOf": [shape(git, "git"), shape(_SHARED, "shared")]})


workspace = _workspace(_GIT)
#: Over the wire, the commit that the ref was when the job file was sent may come along.
wire_workspace = _workspace({**_GIT, "commit": values.git_commit})


KEYS: tuple[Key, ...] = (
    Key(
        "name", kinds.text(limits.NAME, "name: pendulum", templates=True),
        "The name of the run in lists and messages.", "the file's name without its extension",
    ),
    Key(
        "run", values.run, "A shell script, or a list of arguments that is executed without a shell.",
        "required, unless `build` or `steps` is given",
    ),
    Key(
        "image", values.image, "The container image that the job runs in.",
        "the coordinator's default image; without one, a plain process with limits",
    ),
    Key(
        "files", file_values.local_files,
        "Files, folders and patterns like `data/*.csv`, next to the job file. They are uploaded on submit and copied "
        "into the workspace.",
    ),
    Key(
        "workspace", workspace, "A repository to check out, or a folder that the worker's owner shares.",
        "an empty directory",
    ),
    Key("env", values.env, "Environment variables. Values are text, numbers or booleans."),
    Key(
        "secrets", values.secrets,
        "Names of secrets that the coordinator holds. Their values appear only in the job's environment.",
    ),
    Key(
        "resources", RESOURCES, "The resources that the job gets and may not exceed.",
        "`{cpus: 1, memory: 1GiB, gpus: 0, disk: 2GiB}`",
    ),
    Key(
        "requires", values.labels("write for example {os: linux, gpu: rtx*}"),
        "Labels that the worker must have. Values may use `*` and `?`.",
    ),
    Key(
        "network", kinds.choice("none", "internet"),
        "Which network the job may reach. Only workers whose owner allows it take jobs with `internet`.",
        "`none`; with `build`, `internet`",
    ),
    Key("timeout", kinds.duration(*limits.TIMEOUT), "How long one attempt may take.", "`1h`"),
    Key(
        "watchdog", kinds.duration(*limits.WATCHDOG),
        "An attempt that writes neither output nor progress for this long has failed: it is `stalled`.",
        "the coordinator's `default_watchdog`: none unless the pool's organiser sets one",
    ),
    Key(
        "max_attempts", kinds.number(*limits.MAX_ATTEMPTS, whole=True),
        "Maximum number of attempts if infrastructure fails.",
        "the coordinator's `default_max_attempts`: `3` unless the pool's organiser changes it",
    ),
    Key(
        "retry", RETRY, "Whether to retry a nonzero exit too, and how long to wait before the next attempt.",
        "`{program: false, backoff: 10s}`",
    ),
    Key("priority", kinds.number(*limits.PRIORITY, whole=True), "Jobs with a higher priority go first.", "`0`"),
    Key(
        "artifacts", file_values.artifacts,
        "Files in the workspace to keep, as globs. With `when: always`, they are kept even if the job fails.",
    ),
    Key(
        "result", file_values.result, "A file with a JSON object: its entries are columns of the results table.",
        "what the job writes to `$DEBORGEN_RESULT`",
    ),
    Key(
        "checkpoint", CHECKPOINT, "A path that is saved while the job runs and restored in its next attempt.",
    ),
    Key("labels", values.labels("write for example {project: thesis}"), "Labels of your choice, to find the run by."),
    Key("sweep", sweep, "Run this job once per combination of parameters."),
    Key(
        "repeat", REPEAT,
        "Repeat the job until the check `until` succeeds, at most `most` times. Each round is one job of work and one "
        "check.",
    ),
    Key(
        "build", BUILD, "An image to build, from a repository or from `files`.",
    ),
)  # fmt: skip

#: Keys that describe the run as a whole and are not allowed in a step.
RUN_ONLY = ("labels",)
#: Keys that are allowed only in a step.
STEP_ONLY = ("id", "needs")


_BY_HAND: dict[str, Check] = {key.name: key.kind.check for key in KEYS}
_WIRE = {"files": file_values.wire_files.check, "workspace": wire_workspace.check}
#: The check of each key, for a hand-written job file (False) and for one that came over the wire (True).
TOP: dict[bool, dict[str, Check]] = {False: _BY_HAND, True: _BY_HAND | _WIRE}
STEP = {wire: {name: check for name, check in top.items() if name not in RUN_ONLY} for wire, top in TOP.items()}
NOT_YET: dict[str, str] = {key.name: key.not_yet for key in KEYS if key.not_yet}
#: Keys that say what a program runs with. A job that builds an image has no program.
OF_PROGRAMS = ("image", "workspace", "env", "secrets", "artifacts", "result", "checkpoint")
#: Mappings that a step merges with the file's, entry by entry, instead of replacing them.
MERGED = ("env", "requires", "resources", "retry")
