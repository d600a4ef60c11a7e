"""From plain data to a JobFile: all keys checked, all problems found at once."""

from __future__ import annotations

import re
from typing import Any

from deborgen_shared.jobfile import limits, template
from deborgen_shared.jobfile.checks import Check, Problems, empty, subject, unknown_key, wrong_kind
from deborgen_shared.jobfile.keys import MERGED, NOT_YET, RUN_ONLY, STEP, TOP
from deborgen_shared.jobfile.model import JobFile, JobSpec, Resources, Retry, Step
from deborgen_shared.jobfile.needs import check_needs
from deborgen_shared.jobfile.problems import JobFileInvalid, Path, Problem, did_you_mean, kind, show
from deborgen_shared.jobfile.sweep import Sweep

STEP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
COMPLETE = "a complete job is: run: echo hello"

#: A lookup as it is written, where it stands, and the key that it belongs to.
Reference = tuple[str, str, Path, str]


def parse(data: object, *, wire: bool, default_name: str = "job", max_jobs: int = limits.JOBS) -> JobFile:
    """The job file, or JobFileInvalid with all its problems.

    `wire` is the form that the coordinator takes, where `files` are blobs; otherwise they are paths beside the file.
    """
    problems: Problems = []
    jobfile = check(data, problems, wire=wire, default_name=default_name, max_jobs=max_jobs)
    if problems or jobfile is None:
        raise JobFileInvalid(problems)
    return jobfile


def check(data: object, problems: Problems, *, wire: bool, default_name: str, max_jobs: int) -> JobFile | None:
    """The job file, when no problem was added."""
    if not isinstance(data, dict):
        what = "is empty" if data is None else f"must be a mapping of keys, not {kind(data)}"
        problems.append(Problem((), f"the job file {what}", COMPLETE))
        return None
    top = _Level(data, (), TOP[wire], problems, skip=("steps",))
    ways = [key for key in ("run", "build", "steps") if key in data]
    if len(ways) > 1:
        message = f"'{ways[0]}' and '{ways[1]}' exclude each other"
        hint = "a file has exactly one of run, build and steps"
        problems.append(Problem((ways[1],), message, hint, key=True))
    elif not ways:
        problems.append(Problem((), "the job file has no 'run', 'build' or 'steps'", COMPLETE))
    if "steps" in data:
        steps = _steps(data["steps"], top, wire, default_name, problems)
    else:
        steps = [_step(None, [], {}, top, None, default_name, problems)]
    _check_counts(steps, max_jobs, problems)
    if problems:
        return None
    name = template.without_references(top.values.get("name", default_name[: limits.NAME]))
    not_yet = [Problem(path, f"{subject(path)} {NOT_YET[str(path[-1])]}", key=True) for path in _not_yet(data)]
    return JobFile(name, top.values.get("labels", {}), top.values.get("priority", 0), steps, not_yet)


class _Level:
    """The keys of the file, or of one of its steps: their values, and what they look up."""

    __slots__ = ("path", "references", "values")

    def __init__(
        self, data: dict[Any, Any], path: Path, keys: dict[str, Check], problems: Problems, skip: tuple[str, ...]
    ) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        for key, value in data.items():
            check = keys.get(key)
            if check is not None:
                here = (*path, key)
                if value is None:
                    problems.append(empty(value, here))
                else:
                    self.values[key] = check(value, here, problems)
            elif key not in skip:
                _unknown(key, path, keys, skip, data, problems)
        self.references = _references(data, path, problems)


def _unknown(
    key: Any, path: Path, keys: dict[str, Check], skip: tuple[str, ...], data: dict[Any, Any], problems: Problems
) -> None:
    place = (
        f" in step '{show(data['id'])}'"
        if path and isinstance(data.get("id"), str)
        else f" in {subject(path)}"
        if path
        else ""
    )
    if path and key in (*RUN_ONLY, "steps"):
        problems.append(
            Problem((*path, key), f"'{key}' cannot stand{place}", "write it at the top of the file", key=True)
        )
    elif not path and key in ("needs", "id"):
        problems.append(Problem((key,), f"'{key}' can only stand in a step", "write it under steps:", key=True))
    elif key == "<<":
        problems.append(Problem((*path, key), "'<<' does not merge in YAML 1.2", "write the keys out", key=True))
    else:
        unknown_key(key, (*keys, *skip), path, problems, place)


def _references(data: dict[Any, Any], path: Path, problems: Problems) -> list[Reference]:
    """What the level looks up, where it is written. What is not a lookup is a problem."""
    found: list[Reference] = []

    def look(text: Any, where: Path, key: str) -> None:
        if isinstance(text, str) and template.OPEN in text:
            for whole, name in template.references(text):
                if name:
                    found.append((whole, name, where, key))
                else:
                    _not_a_lookup(whole, where, problems)

    for key in ("name", "image", "result"):
        if key in data:
            look(data[key], (*path, key), key)
    run = data.get("run")
    if isinstance(run, list):
        for index, item in enumerate(run):
            look(item, (*path, "run", index), "run")
    else:
        look(run, (*path, "run"), "run")
    if isinstance(env := data.get("env"), dict):
        for name, item in env.items():
            look(item, (*path, "env", name), f"env.{name}")
    if isinstance(artifacts := data.get("artifacts"), list):
        for index, item in enumerate(artifacts):
            if isinstance(item, dict):
                look(item.get("path"), (*path, "artifacts", index, "path"), "artifacts")
            else:
                look(item, (*path, "artifacts", index), "artifacts")
    if isinstance(build := data.get("build"), dict):
        look(build.get("tag"), (*path, "build", "tag"), "build")
    return found


def _not_a_lookup(whole: str, where: Path, problems: Problems) -> None:
    if not whole.endswith("}}"):
        message = f"a ${{{{ in {subject(where)} is never closed"
        problems.append(Problem(where, message, "write ${{ name }}", find=whole))
    else:
        message = f"'{show(whole)}' is not a lookup of a name"
        problems.append(Problem(where, message, "write ${{ name }}: there are no expressions", find=whole))


def _steps(value: Any, top: _Level, wire: bool, default_name: str, problems: Problems) -> list[Step]:
    if not isinstance(value, list):
        wrong_kind(value, ("steps",), problems, "a list of steps", "write - id: prepare, and under it run: ...")
        return []
    if not value:
        problems.append(Problem(("steps",), "'steps' is an empty list", "write - id: prepare, and under it run: ..."))
    if len(value) > limits.STEPS:
        problems.append(Problem(("steps",), f"there are {len(value):,} steps, and the limit is {limits.STEPS:,}"))
        return []
    steps: list[Step] = []
    ids: list[str | None] = []
    for index, item in enumerate(value):
        path: Path = ("steps", index)
        if not isinstance(item, dict):
            problems.append(
                Problem(path, f"step {index + 1} is {kind(item)}, and must be a mapping", "write id: and run:")
            )
            ids.append(None)
            continue
        level = _Level(item, path, STEP[wire], problems, skip=("id", "needs"))
        step_id = _id(item, path, ids, problems)
        ids.append(step_id)
        ways = [key for key in ("run", "build") if key in item]
        called = f"step '{step_id}'" if step_id else f"step {index + 1}"
        if len(ways) == 2:
            problems.append(Problem((*path, "build"), f"{called} has both 'run' and 'build'", "remove one", key=True))
        elif not ways:
            problems.append(Problem(path, f"{called} has no 'run'", "write run: and what it does"))
        steps.append(_step(step_id, [], item, top, level, default_name, problems))
    needs = check_needs(value, ids, problems)
    if problems:
        return []
    return [Step(s.id, needs[i], s.spec, s.sweep, s.local_files, s.path) for i, s in enumerate(steps)]


def _id(item: dict[str, Any], path: Path, ids: list[str | None], problems: Problems) -> str | None:
    value = item.get("id")
    number = len(ids) + 1
    if value is None:
        problems.append(Problem(path, f"step {number} has no 'id'", f"write id: step{number}"))
        return None
    here = (*path, "id")
    if not isinstance(value, str) or not STEP_ID.fullmatch(value) or len(value) > limits.STEP_ID:
        hint = f"use at most {limits.STEP_ID} letters, digits, _ and -"
        problems.append(Problem(here, f"'{show(value)}' is not a name for a step", hint))
        return None
    if value.lower() in [other.lower() for other in ids if other]:
        problems.append(Problem(here, f"two steps are called '{value}'", "rename one of them"))
    return value


def _step(
    step_id: str | None,
    needs: list[str],
    data: dict[str, Any],
    top: _Level,
    level: _Level | None,
    default_name: str,
    problems: Problems,
) -> Step:
    """The step with the file's keys as its defaults. Worth something only when there are no problems."""
    values = _merge(top.values, level.values) if level else dict(top.values)
    references = top.references
    if level:
        own = {key if key not in MERGED else "" for key in level.values}
        own |= {f"env.{name}" for name in level.values.get("env") or {}}
        references = [r for r in references if r[3] not in own] + level.references
    sweep: Sweep | None = values.pop("sweep", None)
    broken = sweep is None and ("sweep" in top.values or (level is not None and "sweep" in level.values))
    if references and not broken:
        git = "build" in values or getattr(values.get("workspace"), "git", None) is not None
        _check_references(references, sweep, step_id, git, problems)
    path = level.path if level else top.path
    if problems:
        return Step(step_id, needs, _NO_SPEC, sweep, [], path)
    local: list[str] = []
    if "files" in values and values["files"] and isinstance(values["files"][0], str):
        local = values.pop("files")
    if "resources" in values:
        values["resources"] = Resources(**values["resources"])
    if "retry" in values:
        values["retry"] = Retry(**values["retry"])
    if "name" not in values:
        values["name"] = default_name[: limits.NAME]
    return Step(step_id, needs, JobSpec(**values), sweep, local, path)


_NO_SPEC = JobSpec()


def _merge(top: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A step's keys over the file's. What is a mapping of single settings is merged setting by setting."""
    values = {**top, **own}
    for key in MERGED:
        if key in top and key in own and isinstance(top[key], dict) and isinstance(own[key], dict):
            values[key] = {**top[key], **own[key]}
    return values


def _check_references(
    references: list[Reference], sweep: Sweep | None, step_id: str | None, git: bool, problems: Problems
) -> None:
    names = sweep.names if sweep else ()
    for whole, name, where, key in references:
        if name in names:
            if sweep and key in ("image", "artifacts", "result", "build"):
                _check_substitutes(sweep, name, key, whole, where, problems)
            continue
        if name in template.FACTS or (git and name in template.GIT_FACTS):
            continue
        place = f"step '{step_id}'" if step_id else "this job"
        if name.startswith("git."):
            known = name in template.GIT_FACTS
            message = (
                f"'{name}' is known only with 'build' or 'workspace: {{git: ...}}'"
                if known
                else f"there is no '{name}'"
            )
            hint = "" if known else did_you_mean(name, template.GIT_FACTS, f"known: {', '.join(template.GIT_FACTS)}")
        else:
            message = f"'{show(name)}' is not a parameter of {place}"
            known_names = [*names, *template.FACTS]
            listed = f"parameters: {', '.join(names)}" if names else f"add sweep: {{grid: {{{name}: [1, 2, 3]}}}}"
            hint = did_you_mean(name, known_names, listed)
        problem = Problem(where, message, hint, find=whole)
        if problem not in problems:
            problems.append(problem)


def _check_substitutes(sweep: Sweep, name: str, key: str, whole: str, where: Path, problems: Problems) -> None:
    """A parameter that becomes part of a path or of an image has values that may stand there."""
    from deborgen_shared.jobfile.paths import check_path
    from deborgen_shared.jobfile.values import IMAGE

    for value in sweep.values(name):
        text = template.text_of(value)
        if key in ("image", "build"):
            bad = not IMAGE.fullmatch("x" + text) or text.startswith("-")
            message = f"the value '{show(text)}' of '{name}' cannot stand in the name of an image"
        else:
            reason = check_path(text)
            bad = reason is not None
            message = f"the value '{show(text)}' of '{name}' cannot stand in a path: it {reason}"
        if bad:
            problems.append(Problem(where, message, "change the value, or do not use it here", find=whole))
            return


def _check_counts(steps: list[Step], max_jobs: int, problems: Problems) -> None:
    total = 0
    for step in steps:
        if step.sweep is None:
            total += 1
            continue
        path = _sweep_path(step)
        if step.sweep.size > max_jobs:
            message = f"the sweep makes {step.sweep.size:,} jobs, and the limit is {max_jobs:,}"
            if step.sweep.excludes:
                message = (
                    f"the sweep makes {step.sweep.size:,} combinations before 'exclude', and the limit is {max_jobs:,}"
                )
            problems.append(Problem(path, message, "make an axis shorter, or submit it in parts", key=True))
            return
        if step.sweep.count == 0:
            problems.append(
                Problem((*path, "exclude"), "'exclude' leaves no combination", "remove a row of it", key=True)
            )
        total += step.sweep.count
    if total > max_jobs:
        problems.append(Problem(("steps",), f"the steps make {total:,} jobs, and the limit is {max_jobs:,}", key=True))


def _sweep_path(step: Step) -> Path:
    return (*step.path, "sweep")


def _not_yet(data: dict[str, Any]) -> list[Path]:
    found: list[Path] = [(key,) for key in data if key in NOT_YET]
    for index, item in enumerate(data.get("steps", ())):
        found += [("steps", index, key) for key in item if key in NOT_YET]
    return found
