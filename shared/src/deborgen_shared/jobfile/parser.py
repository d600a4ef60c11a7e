"""Turns plain data into a JobFile. It checks every key and reports all problems at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deborgen_shared.jobfile import limits, references
from deborgen_shared.jobfile.builds import check_build, step_images
from deborgen_shared.jobfile.keys import MERGED, NOT_YET, OF_PROGRAMS, RUN_ONLY, STEP, STEP_ONLY, TOP
from deborgen_shared.jobfile.kinds import Check
from deborgen_shared.jobfile.model import JobFile, JobResources, JobSpec, RetryPolicy, Step, jobs_per_point
from deborgen_shared.jobfile.needs import STEP_ID, check_inputs, check_needs
from deborgen_shared.jobfile.paths import PREVIOUS, fold
from deborgen_shared.jobfile.problems import Path, Problem, Problems, differ_in_case, kind, show, subject
from deborgen_shared.jobfile.structure import report_empty, report_unknown_key
from deborgen_shared.jobfile.sweep import Sweep
from deborgen_shared.jobfile.syntax import missing_space
from deborgen_shared.jobfile.template import without_references

COMPLETE = "a complete job file is: run: echo hello"
STEP_EXAMPLE = "write {id: prepare, run: python prep.py}"


def check(data: object, problems: Problems, wire: bool, defaults: dict[str, Any], max_jobs: int) -> JobFile | None:
    """The job file, or None if problems were added. `defaults` are the values of keys that the file leaves out."""
    if not isinstance(data, dict):
        what = "is empty" if data is None else f"must be a mapping of keys, not {kind(data)}"
        hint = missing_space(data) if isinstance(data, str) else None
        problems.add((), f"the job file {what}", hint or COMPLETE)
        return None
    top = _Level(data, (), TOP[wire], problems)
    _check_exactly_one(data, problems)
    if "steps" in data and "repeat" in data:
        problems.add(("repeat",), "'repeat' belongs in a step", "write it in the step that repeats", key=True)
    levels, needs = _steps(data["steps"], wire, problems) if "steps" in data else ([top], [[]])
    # Each parameter of any step, with that step: for hints about a parameter that only another step has.
    others = {
        name: level.id for level in levels if level.id for name in getattr(level.values.get("sweep"), "names", ())
    }
    within_limit = _check_counts(top, levels, max_jobs, problems)
    for at, level in enumerate(levels):
        check_build(top, level, problems)
        lookups = (reference.name for reference in (*top.references, *level.references))
        images = step_images(levels, needs, at, lookups)
        _check_lookups(top, level, others, images, within_limit, problems)
        _check_repeat(level, _needs_of(level, needs), problems)
        _check_shared(top, level, problems)
    check_inputs(_files(top, levels, needs), problems)
    if problems:
        return None
    values = {**defaults, **top.values}
    steps = [_step(values, level, needs[index]) for index, level in enumerate(levels)]
    not_yet = [Problem(path, f"{subject(path)} {NOT_YET[str(path[-1])]}", key=True) for path in _find_not_yet(data)]
    return JobFile(
        without_references(values["name"]), values.get("labels", {}), values.get("priority", 0), steps, not_yet
    )


class _Level:
    """The keys of the file or of one step: their values, and the `${{ … }}` lookups in them."""

    __slots__ = ("id", "path", "references", "values")

    def __init__(self, data: dict[Any, Any], path: Path, keys: dict[str, Check], problems: Problems) -> None:
        self.id: str | None = None
        self.path = path
        self.values: dict[str, Any] = {}
        for key, value in data.items():
            check = keys.get(key)
            if check is None:
                if key not in (STEP_ONLY if path else ("steps",)):
                    _report_unknown(key, path, keys, data, problems)
            elif value is None:
                report_empty((*path, key), problems)
            else:
                self.values[key] = check(value, (*path, key), problems)
        self.references = references.find(data, path, problems)


def _report_unknown(key: Any, path: Path, keys: dict[str, Check], data: dict[Any, Any], problems: Problems) -> None:
    place = ""
    if path:
        place = f" in step '{show(data['id'])}'" if isinstance(data.get("id"), str) else f" in step {int(path[1]) + 1}"
    here = (*path, str(key))
    if path and key in (*RUN_ONLY, "steps"):
        problems.add(here, f"'{key}' cannot be set{place}", "write it at the top of the file", key=True)
    elif not path and key in STEP_ONLY:
        problems.add(here, f"'{key}' belongs in a step", "write it under steps:", key=True)
    elif key == "<<":
        problems.add(here, "'<<' does not merge in YAML 1.2", "write the keys out", key=True)
    else:
        report_unknown_key(key, (*keys, *(STEP_ONLY if path else ("steps",))), path, problems, place)


def _check_exactly_one(data: dict[Any, Any], problems: Problems) -> None:
    """Exactly one of `run`, `build` and `steps`."""
    given = [key for key in data if key in ("run", "build", "steps")]
    if len(given) > 1:
        hint = "a file has exactly one of run, build and steps"
        problems.add((given[1],), f"'{given[0]}' and '{given[1]}' cannot be used together", hint, key=True)
    # An earlier problem may be about the same key, misspelt: its hint names the key then.
    elif not given and not any("'run'" in p.hint or "run:" in p.hint or "'steps'" in p.hint for p in problems):
        problems.add((), "the job file has no 'run', 'build' or 'steps'", COMPLETE)


def _steps(value: Any, wire: bool, problems: Problems) -> tuple[list[_Level], list[list[str]]]:
    """The levels of all valid steps, and what each step needs."""
    if not isinstance(value, list):
        hint = STEP_EXAMPLE
        if isinstance(value, dict) and value:
            hint = f"write '- id: {show(next(iter(value)))}' instead of '{show(next(iter(value)))}:'"
        problems.wrong_kind(value, ("steps",), "a list of steps", hint)
        return [], []
    if not value:
        problems.add(("steps",), "'steps' is an empty list", STEP_EXAMPLE)
    if len(value) > limits.STEPS:
        problems.add(("steps",), f"there are {len(value):,} steps, but the limit is {limits.STEPS:,}")
        return [], []
    levels: list[_Level] = []
    ids: list[str | None] = []
    known: dict[str, str] = {}
    for index, item in enumerate(value):
        if isinstance(item, dict):
            level = _Level(item, ("steps", index), STEP[wire], problems)
            level.id = _check_id(item, level.path, known, problems)
            _check_run_or_build(item, level, problems)
            levels.append(level)
            ids.append(level.id)
        else:
            hint = f"write {{id: step{index + 1}, run: {show(item)}}}" if isinstance(item, str) else STEP_EXAMPLE
            problems.add(("steps", index), f"step {index + 1} must be a mapping, not {kind(item)}", hint)
            ids.append(None)
    return levels, check_needs(value, ids, problems)


def _check_id(item: dict[str, Any], path: Path, ids: dict[str, str], problems: Problems) -> str | None:
    value = item.get("id")
    if value is None:
        number = int(path[1]) + 1
        problems.add(path, f"step {number} has no 'id'", f"write id: step{number}")
        return None
    here = (*path, "id")
    if not isinstance(value, str) or not STEP_ID.fullmatch(value) or len(value) > limits.STEP_ID:
        hint = f"use at most {limits.STEP_ID} letters, digits, _ and -"
        problems.add(here, f"'{show(value)}' is not a valid step name", hint)
        return None
    if value.lower() in ids:
        other = ids[value.lower()]
        message = f"two steps are called '{value}'" if other == value else differ_in_case(other, value)
        problems.add(here, message, "rename one of them")
    ids[value.lower()] = value
    return value


def _check_run_or_build(item: dict[str, Any], level: _Level, problems: Problems) -> None:
    called = f"step '{level.id}'" if level.id else f"step {int(level.path[1]) + 1}"
    if "run" in item and "build" in item:
        problems.add((*level.path, "build"), f"{called} has both 'run' and 'build'", "remove one", key=True)
    elif "run" not in item and "build" not in item:
        problems.add(level.path, f"{called} has no 'run'", "add run: and the command of the step")


def _check_repeat(level: _Level, needs: list[str], problems: Problems) -> None:
    """Only a program can be repeated, and nothing else may appear where the artifacts of its last round do."""
    if "repeat" not in level.values:
        return
    here = (*level.path, "repeat")
    if "build" in level.values:
        problems.add(here, "'repeat' goes with 'run', not with 'build'", "remove one of them", key=True)
    for need in needs:
        if isinstance(need, str) and fold(need) == PREVIOUS:
            message = f"the artifacts of step '{need}' would appear where those of the last round do"
            problems.add(here, message, "give that step another name", key=True)


def _check_lookups(
    top: _Level, level: _Level, others: dict[str, str], images: dict[str, str], within_limit: bool, problems: Problems
) -> None:
    """Every lookup of a step must be defined in that step, also in keys that it inherits from the file."""
    found, values = top.references, top.values
    if level is not top:
        values = {**top.values, **level.values}
        own = {key for key in level.values if key != "env"} | {f"env.{name}" for name in level.values.get("env") or ()}
        found = [reference for reference in top.references if reference.key not in own] + level.references
    env = {**top.values.get("env", {}), **level.values.get("env", {})}
    for index, name in enumerate(values.get("secrets", ())):
        if isinstance(name, str) and name in env:
            path = (*(level.path if "secrets" in level.values else ()), "secrets", index)
            problem = Problem(path, f"'{name}' is in both 'env' and 'secrets'", "remove one of them")
            if problem not in problems:
                problems.append(problem)
    sweep: Sweep | None = values.get("sweep")
    if found and (sweep or "sweep" not in values):
        git = any(getattr(values.get(key), "git", None) is not None for key in ("build", "workspace"))
        place = "this job" if level is top else f"step '{level.id}'" if level.id else "this step"
        known = references.Known(place, git, others, images)
        references.check(found, sweep, known, within_limit, problems)
        if sweep and within_limit:
            references.check_size(found, sweep, place, problems)


def _check_shared(top: _Level, level: _Level, problems: Problems) -> None:
    """In a shared folder that the job only reads, there is no place for its files, and it makes none there. No shared
    folder needs a checkpoint."""

    def refuse(keys: Iterable[str], what: str, hint: str) -> None:
        for key in keys:
            holder = level if key in level.values else top
            problem = Problem((*holder.path, key), f"'{key}' {what}", hint, key=True)
            if holder.values.get(key) and problem not in problems:
                problems.append(problem)

    workspace = (level if "workspace" in level.values else top).values.get("workspace")
    if workspace is None or not workspace.shared:
        return
    refuse(["checkpoint"], "does not go with a shared folder", "remove it: what a job writes there stays there")
    if not workspace.write:
        what = "needs a workspace that the job may write to, but it only reads the shared folder"
        hint = "add write: true to the workspace, and the folder's owner must allow it"
        refuse(["files", "artifacts", "result"], what, hint)


def _files(top: _Level, levels: list[_Level], needs: list[list[str]]) -> Iterator[tuple[Path, list[Any], list[str]]]:
    """For each step that needs others, or repeats: its files, which it may inherit from the file, their path, and its
    needs."""
    for level in levels:
        holder = level if "files" in level.values else top
        previous = [PREVIOUS] if "repeat" in level.values else []
        if files := holder.values.get("files"):
            yield (*holder.path, "files"), files, _needs_of(level, needs) + previous


def _needs_of(level: _Level, needs: list[list[str]]) -> list[str]:
    return needs[int(level.path[1])] if level.path else []


def _check_counts(top: _Level, levels: list[_Level], max_jobs: int, problems: Problems) -> bool:
    """Whether the number of jobs is within the limit. A sweep without any job is also a problem."""
    total, made = 0, "jobs"
    used: list[Sweep] = []
    sweeps: dict[Path, Sweep] = {}
    for level in levels:
        holder = level if "sweep" in level.values else top
        sweep: Sweep | None = holder.values.get("sweep")
        total += sweep.size if sweep else 1
        if sweep:
            used.append(sweep)
            sweeps[(*holder.path, "sweep")] = sweep
            made = "combinations before 'exclude'" if sweep.exclude else made
    if total <= max_jobs and not _check_rounds(top, levels, max_jobs, problems):
        return False
    if total > max_jobs:
        path, sweep = max(sweeps.items(), key=lambda item: item[1].size, default=((), None))
        alone = sweep is not None and sweep.size > max_jobs  # one sweep is already too large by itself
        if sweep is not None and alone:
            total, made = sweep.size, "combinations before 'exclude'" if sweep.exclude else "jobs"
        size = f"{total:,}" if total < 10**15 else "more than 10^15"
        message = f"the {'sweep makes' if alone else 'steps make'} {size} {made}, but the limit is {max_jobs:,}"
        hint = "make an axis shorter, or submit it in parts" if alone else "submit them in several runs"
        problems.add(path if alone else ("steps",), message, hint, key=True)
        return False
    text = sum(sweep.text_size for sweep in used)
    most = max(limits.PARAMETER_BYTES, max_jobs * limits.PARAMETER_BYTES_PER_JOB)
    if text > most:
        path = max(sweeps, key=lambda path: sweeps[path].text_size)
        took = f"{text // limits.MIB:,} MiB, but the limit is {most // limits.MIB:,} MiB"
        message = f"the parameters of all jobs take {took}"
        problems.add(path, message, "sweep over short values, such as the names of files under 'files'", key=True)
        return False
    for path, sweep in sweeps.items():
        if sweep.count == 0:
            problems.add((*path, "exclude"), "'exclude' removes every combination", "remove one of its rows", key=True)
    return True


def _check_rounds(top: _Level, levels: list[_Level], max_jobs: int, problems: Problems) -> bool:
    """Whether the number of jobs stays within the limit even if every loop goes on to its last round."""
    total, largest = 0, 0
    where: Path = ()
    for level in levels:
        sweep: Sweep | None = (level if "sweep" in level.values else top).values.get("sweep")
        repeat = level.values.get("repeat")
        size = (sweep.size if sweep else 1) * jobs_per_point(repeat)
        total += size
        if repeat and size > largest:
            largest, where = size, (*level.path, "repeat")
    if total <= max_jobs:
        return True
    message = f"with two jobs per round, there may be {total:,} jobs, but the limit is {max_jobs:,}"
    problems.add((*where, "most"), message, "lower 'most', or repeat fewer jobs")
    return False


def _step(defaults: dict[str, Any], level: _Level, needs: list[str]) -> Step:
    """Build the step, with the file's keys as defaults."""
    values = dict(defaults)
    if level.path:
        for key, value in level.values.items():
            values[key] = {**values[key], **value} if key in MERGED and key in values else value
    if "build" in level.values:
        values = {"network": "internet"} | {key: values[key] for key in values if key not in (*OF_PROGRAMS, "run")}
        if values["build"].git is not None:
            values.pop("files", None)
    sweep = values.pop("sweep", None)
    local: list[str] = []
    if (files := values.get("files")) and isinstance(files[0], str):
        local = values.pop("files")
    if "resources" in values:
        values["resources"] = JobResources(**values["resources"])
    if "retry" in values:
        values["retry"] = RetryPolicy(**values["retry"])
    return Step(level.id, needs, JobSpec(**values), sweep, local, level.path)


def _find_not_yet(data: dict[str, Any]) -> list[Path]:
    found: list[Path] = [(key,) for key in data if key in NOT_YET]
    for index, item in enumerate(data.get("steps", ())):
        found += [("steps", index, key) for key in item if key in NOT_YET]
    return found
