"""Checks of mappings and lists: that they are there, not too large, and have no keys but the known ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deborgen_shared.jobfile.checks import Check, subject, wrong_kind
from deborgen_shared.jobfile.problems import Path, Problem, Problems, did_you_mean, show

#: What other tools call it.
ELSEWHERE = {
    **dict.fromkeys(("command", "cmd", "script", "exec", "program"), "write run: instead"),
    **dict.fromkeys(("environment", "envs", "variables", "vars"), "write env: instead"),
    **dict.fromkeys(("container", "docker"), "write image: instead"),
    **dict.fromkeys(("inputs", "input", "uploads"), "write files: instead"),
    **dict.fromkeys(("outputs", "output"), "write artifacts: instead"),
    **dict.fromkeys(("matrix", "params", "parameters", "grid", "cases"), "write sweep: {grid: ...} instead"),
    **dict.fromkeys(("attempts", "retries", "max_retries"), "write max_attempts: instead"),
    **dict.fromkeys(("walltime", "time", "time_limit", "max_time"), "write timeout: instead"),
    **dict.fromkeys(("jobs", "tasks", "stages", "pipeline"), "write steps: instead"),
    **dict.fromkeys(("depends_on", "depends", "dependencies", "after"), "write needs: instead"),
    **dict.fromkeys(("cpu", "cpus"), "write resources: {cpus: 2}"),
    **dict.fromkeys(("memory", "mem", "ram"), "write resources: {memory: 4GiB}"),
    **dict.fromkeys(("gpu", "gpus"), "write resources: {gpus: 1}"),
    **dict.fromkeys(("disk", "storage"), "write resources: {disk: 10GiB}"),
}


def unknown_key(key: object, known: Iterable[str], path: Path, problems: Problems, place: str) -> None:
    """A problem for a key that is not known. `place` is the end of the sentence: ` in 'resources'`."""
    known = list(known)
    listed = f"known keys: {', '.join(known)}"
    if "run" in known and (hint := ELSEWHERE.get(str(key).lower())):
        listed = hint
    problem = Problem(
        (*path, str(key)), f"unknown key '{show(key)}'{place}", did_you_mean(key, known, listed), key=True
    )
    problems.append(problem)


def mapping(value: Any, path: Path, problems: Problems, example: str, limit: int | None = None) -> bool:
    """Whether the value is a mapping with names for keys, of at most `limit` entries."""
    if not isinstance(value, dict):
        wrong_kind(value, path, problems, "a mapping", f"write for example {example}")
        return False
    if limit is not None and len(value) > limit:
        problems.append(Problem(path, f"{subject(path)} has {len(value):,} entries, and the limit is {limit:,}"))
        return False
    return True


def sequence(value: Any, path: Path, problems: Problems, example: str, limit: int) -> bool:
    """Whether the value is a list of at most `limit` entries."""
    if not isinstance(value, list):
        hint = f"write [{show(value)}]" if isinstance(value, str) and value.strip() else f"write for example {example}"
        wrong_kind(value, path, problems, "a list", hint)
        return False
    if len(value) > limit:
        problems.append(Problem(path, f"{subject(path)} has {len(value):,} entries, and the limit is {limit:,}"))
        return False
    return True


def record(fields: Mapping[str, Check], example: str, required: tuple[str, ...] = ()) -> Check:
    """A mapping with these keys and no others; gives a dictionary of what was written."""

    def check(value: Any, path: Path, problems: Problems) -> Any:
        done: dict[str, Any] = {}
        if not mapping(value, path, problems, example):
            return done
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                unknown_key(key, fields, path, problems, f" in {subject(path)}")
            elif item is None:
                problems.append(empty((*path, key)))
            else:
                done[key] = field(item, (*path, key), problems)
        for key in required:
            if key not in value:
                problems.append(Problem(path, f"{subject(path)} has no '{key}'", f"write for example {example}"))
        return done

    return check


def empty(path: Path) -> Problem:
    return Problem(path, f"{subject(path)} is empty", "give it a value, or remove the line", key=True)
