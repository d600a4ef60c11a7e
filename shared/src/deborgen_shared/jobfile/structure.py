"""Checks of mappings and lists: that they have the right type, are not too large, and have only known keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deborgen_shared.jobfile.kinds import Shape, ValueKind, check_scalar, refuse_template, scalar_shape
from deborgen_shared.jobfile.problems import Path, Problems, did_you_mean, show, subject
from deborgen_shared.jobfile.template import text_of

#: Keys that other tools use, each with a hint that names our key.
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


def report_unknown_key(
    key: object,
    known: Iterable[str],
    path: Path,
    problems: Problems,
    place: str | None = None,
    otherwise: str | None = None,
) -> None:
    """Add a problem for an unknown key. `place` is the end of the sentence, such as ` in 'resources'`.

    `otherwise` is the hint if no known key is similar; by default, the hint lists the known keys.
    """
    known = list(known)
    listed = otherwise or f"known keys: {', '.join(known)}"
    if "run" in known:  # only at the top of a job file or in a step
        listed = ELSEWHERE.get(str(key).lower(), listed)
    place = f" in {subject(path)}" if place is None else place
    hint = did_you_mean(key, known, listed)
    problems.add((*path, str(key)), f"unknown key '{show(key)}'{place}", hint, key=True)


def check_mapping(value: Any, path: Path, problems: Problems, hint: str, limit: int | None = None) -> bool:
    """Whether the value is a mapping with at most `limit` entries. If not, add a problem."""
    if not isinstance(value, dict):
        problems.wrong_kind(value, path, "a mapping", hint)
        return False
    return limit is None or not problems.exceeds(path, len(value), limit)


def mapping_shape(name: Shape, value: Shape, limit: int) -> Shape:
    return {"type": "object", "propertyNames": name, "additionalProperties": value, "maxProperties": limit}


def record_shape(fields: Mapping[str, Shape], required: tuple[str, ...] = ()) -> Shape:
    shape: Shape = {"type": "object", "properties": dict(fields), "additionalProperties": False}
    return shape | ({"required": list(required)} if required else {})


def listed(item: ValueKind, limit: int, example: str, *, unique: bool = False) -> ValueKind:
    """A list of at most `limit` values of one kind; with `unique`, without duplicates."""

    def check(value: Any, path: Path, problems: Problems) -> list[Any]:
        if not isinstance(value, list):
            written = isinstance(value, str) and value.strip()
            problems.wrong_kind(
                value, path, "a list", f"write [{show(value)}]" if written else f"write for example {example}"
            )
            return []
        if problems.exceeds(path, len(value), limit):
            return []
        done = []
        for index, each in enumerate(value):
            done.append(item.check(each, (*path, index), problems))
            if unique and each in value[:index]:
                problems.add((*path, index), f"'{show(each)}' is listed twice in {subject(path)}")
        return done

    shape: Shape = {"type": "array", "items": item.shape, "maxItems": limit}
    return ValueKind(check, shape | ({"uniqueItems": True} if unique else {}))


def record(
    fields: Mapping[str, ValueKind], hint: str, required: tuple[str, ...] = (), make: Callable[..., Any] = dict
) -> ValueKind:
    """A mapping with only these keys. If it has no problems, `make` is called with its values."""

    def check(value: Any, path: Path, problems: Problems) -> Any:
        before = len(problems)
        if not check_mapping(value, path, problems, hint):
            return {}
        done: dict[str, Any] = {}
        for key, item in value.items():
            if key not in fields:
                report_unknown_key(key, fields, path, problems)
            elif item is None:
                report_empty((*path, key), problems)
            else:
                done[key] = fields[key].check(item, (*path, key), problems)
        for key in required:
            if key not in value:
                problems.about(path, f"has no '{key}'", hint)
        return make(**done) if len(problems) == before else None

    return ValueKind(check, record_shape({name: kind.shape for name, kind in fields.items()}, required))


def texts(name: ValueKind, value_limit: int, limit: int, hint: str, *, templates: bool = False) -> ValueKind:
    """A mapping from names to texts. Numbers and booleans become text. Templates are refused unless `templates`."""

    def check(value: Any, path: Path, problems: Problems) -> dict[str, str]:
        done: dict[str, str] = {}
        if check_mapping(value, path, problems, hint, limit):
            for key, item in value.items():
                here = (*path, key)
                name.check(key, here, problems)
                if check_scalar(item, here, problems, value_limit):
                    done[key] = text_of(item)
                    if not templates:
                        refuse_template(item, here, problems)
        return done

    return ValueKind(check, mapping_shape(name.shape, scalar_shape(value_limit), limit))


def report_empty(path: Path, problems: Problems) -> None:
    problems.about(path, "is empty", "give it a value, or remove the line", key=True)
