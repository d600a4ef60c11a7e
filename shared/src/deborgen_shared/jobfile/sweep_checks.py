"""The `sweep` key: from what is written to a Sweep, or to the problems that it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from deborgen_shared.jobfile import axes, limits
from deborgen_shared.jobfile.checks import is_number, scalar, shown, subject, wrong_kind
from deborgen_shared.jobfile.problems import Path, Problem, Problems, did_you_mean, kind, show
from deborgen_shared.jobfile.structure import mapping, unknown_key
from deborgen_shared.jobfile.sweep import Sweep
from deborgen_shared.jobfile.template import FACTS, Scalar

PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RANGE_KEYS = ("from", "to", "step", "count", "scale")
AXIS_EXAMPLE = "[1, 2, 3] or {from: 1, to: 20}"
SWEEP_EXAMPLE = "{grid: {seed: {from: 1, to: 20}}}"


def sweep(value: Any, path: Path, problems: Problems) -> Sweep | None:
    """The sweep, or None when it has problems."""
    before = len(problems)
    if not mapping(value, path, problems, SWEEP_EXAMPLE):
        return None
    for key, item in value.items():
        if key not in ("grid", "cases", "exclude"):
            hint = did_you_mean(key, ("grid", "cases", "exclude"))
            if not hint and isinstance(item, (list, dict)):
                hint = f"write it as {{grid: {{{show(key)}: ...}}}}"
            hint = hint or "known keys: grid, cases, exclude"
            problems.append(Problem((*path, str(key)), f"unknown key '{show(key)}' in {subject(path)}", hint, key=True))
    grid = _grid(value["grid"], (*path, "grid"), problems) if "grid" in value else {}
    cases = _cases(value["cases"], (*path, "cases"), problems) if "cases" in value else []
    if len(problems) == before and not grid and not cases:
        problems.append(Problem(path, f"{subject(path)} has no 'grid' and no 'cases'", f"write {SWEEP_EXAMPLE}"))
    names = _names(grid, cases, path, problems)
    exclude = _exclude(value.get("exclude", []), (*path, "exclude"), names, problems)
    return Sweep(grid, cases, exclude) if len(problems) == before else None


def _grid(value: Any, path: Path, problems: Problems) -> dict[str, Sequence[Scalar]]:
    if not mapping(value, path, problems, "{seed: [1, 2, 3]}", limits.AXES):
        return {}
    if not value:
        problems.append(Problem(path, f"{subject(path)} has no axis", "write {seed: [1, 2, 3]}"))
    return {name: _axis(item, (*path, name), problems) for name, item in value.items()}


def _axis(value: Any, path: Path, problems: Problems) -> Sequence[Scalar]:
    if isinstance(value, dict):
        return _range(value, path, problems)
    if not isinstance(value, list):
        hint = f"write [{show(value)}]" if isinstance(value, (str, int, float)) else f"write {AXIS_EXAMPLE}"
        if isinstance(value, str) and (match := re.fullmatch(r"\s*(-?\d+)\s*(?:\.\.+|-)\s*(-?\d+)\s*", value)):
            hint = f"write {{from: {match[1]}, to: {match[2]}}}"
        problems.append(Problem(path, f"the axis {subject(path)} must be a list or a range, not {shown(value)}", hint))
        return []
    if not value:
        problems.append(Problem(path, f"the axis {subject(path)} has no values", f"write {AXIS_EXAMPLE}"))
    if len(value) > limits.AXIS_VALUES:
        _too_many(len(value), path, problems)
        return []
    seen = set()
    for index, item in enumerate(value):
        if scalar(item, (*path, index), problems, limits.PARAMETER_TEXT):
            if item in seen:
                message = f"the value {show(item)} is listed twice in {subject(path)}"
                problems.append(Problem((*path, index), message, "every combination is one job: remove one"))
            seen.add(item)
    return value


def _range(value: dict[Any, Any], path: Path, problems: Problems) -> Sequence[Scalar]:
    before = len(problems)
    for key, item in value.items():
        if key not in RANGE_KEYS:
            unknown_key(key, RANGE_KEYS, path, problems, f" in {subject(path)}")
        elif key == "scale":
            if item not in ("linear", "log"):
                message = f"{subject((*path, key))} must be linear or log, not '{show(item)}'"
                problems.append(
                    Problem((*path, key), message, did_you_mean(item, ("linear", "log"), "write linear or log"))
                )
        elif not is_number(item):
            wrong_kind(item, (*path, key), problems, "a number", "a range is of numbers: for text write a list")
        else:
            scalar(item, (*path, key), problems, 0)
    for key in ("from", "to"):
        if key not in value:
            problems.append(Problem(path, f"the range {subject(path)} has no '{key}'", "write {from: 1, to: 20}"))
    if len(problems) > before:
        return []
    if "count" in value:
        return _spaced(value, path, problems)
    if "scale" in value:
        problems.append(Problem(path, f"the range {subject(path)} has a 'scale' and no 'count'", "add count: 10"))
        return []
    return _stepped(value, path, problems)


def _stepped(value: dict[str, Any], path: Path, problems: Problems) -> Sequence[Scalar]:
    first, last, step = value["from"], value["to"], value.get("step", 1)
    if step == 0:
        problems.append(Problem((*path, "step"), f"{subject((*path, 'step'))} is 0", "write 1, or remove it"))
        return []
    whole = isinstance(first, int) and isinstance(last, int) and isinstance(step, int)
    if not whole and "step" not in value:
        message = f"the range {subject(path)} is not of whole numbers"
        problems.append(Problem(path, message, "add count: 10 (and scale: log), or step: 0.1"))
        return []
    count = (last - first) // step + 1 if whole else axes.steps_between(first, last, step)
    if count < 1:
        hint = "swap them, or write step: -1" if "step" not in value else "the step leads away from 'to'"
        problems.append(Problem(path, f"the range {subject(path)} is empty: from {first} to {last}", hint))
    elif count > limits.AXIS_VALUES:
        _too_many(count, path, problems)
    elif whole:
        return axes.integers(first, last, step)
    else:
        return _told_apart(axes.stepped(first, last, step), path, problems)
    return []


def _spaced(value: dict[str, Any], path: Path, problems: Problems) -> Sequence[Scalar]:
    first, last, count = value["from"], value["to"], value["count"]
    if "step" in value:
        problems.append(Problem(path, f"the range {subject(path)} has both 'count' and 'step'", "remove one of them"))
    elif not isinstance(count, int) or count < 2:
        message = f"{subject((*path, 'count'))} must be a whole number from 2, not {show(count)}"
        problems.append(Problem((*path, "count"), message, "for a single value write a list: [1]"))
    elif count > limits.AXIS_VALUES:
        _too_many(count, path, problems)
    elif first == last:
        message = f"the range {subject(path)} goes from {first} to {last}, and so has one value only"
        problems.append(Problem(path, message, f"write [{first}]"))
    elif value.get("scale") == "log" and (first <= 0 or last <= 0):
        message = f"the range {subject(path)} with scale: log must stay above 0"
        problems.append(Problem(path, message, "use scale: linear, or start above 0"))
    else:
        spaced = axes.logarithmic if value.get("scale") == "log" else axes.linear
        return _told_apart(spaced(first, last, count), path, problems)
    return []


def _told_apart(axis: Sequence[Scalar], path: Path, problems: Problems) -> Sequence[Scalar]:
    """The axis, when its values are numbers that differ."""
    if len(axis) > 1:
        near = (axis[0], axis[1], axis[-2], axis[-1])
        if not all(isinstance(value, (int, float)) and isfinite(value) for value in near):
            problems.append(Problem(path, f"the range {subject(path)} is too wide to compute", "write a smaller range"))
        elif near[0] == near[1] or near[2] == near[3]:
            # Neighbours are closest, in digits, at one of the ends.
            message = f"the range {subject(path)} has values too close to tell apart at 12 digits"
            problems.append(Problem(path, message, "lower the count, or widen the range"))
    return axis


def _too_many(count: int, path: Path, problems: Problems) -> None:
    size = f"{count:,}" if count < 10**15 else "more than 10^15"
    message = f"the axis {subject(path)} has {size} values, and the limit is {limits.AXIS_VALUES:,}"
    problems.append(Problem(path, message, "write a smaller range"))


def _cases(value: Any, path: Path, problems: Problems) -> list[dict[str, Scalar]]:
    rows = _rows(value, path, problems, limits.CASES, "[{mass: 1.0, length: 0.5}, {mass: 2.0, length: 1.5}]")
    if isinstance(value, list) and not value:
        problems.append(Problem(path, f"{subject(path)} is an empty list", "add a case, or remove the line"))
    for index, row in enumerate(rows):
        if row and rows[0] and row.keys() != rows[0].keys():
            lacks = [name for name in rows[0] if name not in row]
            extra = [name for name in row if name not in rows[0]]
            what = f"lacks '{show(lacks[0])}'" if lacks else f"has '{show(extra[0])}' besides"
            message = f"this case {what}: all cases name the same parameters"
            problems.append(Problem((*path, index), message, f"the first one has {show(', '.join(map(str, rows[0])))}"))
    return rows


def _exclude(value: Any, path: Path, names: list[str], problems: Problems) -> list[dict[str, Scalar]]:
    rows = _rows(value, path, problems, limits.EXCLUDES, "[{method: euler, dt: 1e-4}]")
    for index, row in enumerate(rows):
        for name in row:
            if name not in names:
                hint = did_you_mean(name, names, f"parameters: {show(', '.join(map(str, names)))}" if names else "")
                message = f"{subject(path)} names '{show(name)}', which is not a parameter of this sweep"
                problems.append(Problem((*path, index, name), message, hint, key=True))
    if len({frozenset(row) for row in rows}) > limits.EXCLUDE_SHAPES:
        message = f"{subject(path)} uses more than {limits.EXCLUDE_SHAPES} different sets of parameters"
        problems.append(Problem(path, message, "make the rows more alike, or list the cases instead"))
    return rows


def _rows(value: Any, path: Path, problems: Problems, limit: int, example: str) -> list[dict[str, Scalar]]:
    """A list of mappings from names to scalars; what is not a mapping is empty in it."""
    if not isinstance(value, list):
        wrong_kind(value, path, problems, "a list of mappings", f"write for example {example}")
        return []
    if len(value) > limit:
        problems.append(Problem(path, f"{subject(path)} has {len(value):,} entries, and the limit is {limit:,}"))
        return []
    for index, row in enumerate(value):
        here = (*path, index)
        if not isinstance(row, dict) or not row:
            problems.append(Problem(here, f"{subject(here)} must be a mapping of parameters", f"as in {example}"))
            continue
        if len(row) > limits.AXES:
            problems.append(
                Problem(here, f"{subject(here)} has {len(row):,} entries, and the limit is {limits.AXES:,}")
            )
            return []
        for name, item in row.items():
            if isinstance(item, (list, dict)):
                message = f"{subject((*here, name))} is {kind(item)}, and must be one value"
                problems.append(Problem((*here, name), message, "several values belong in 'grid'"))
            else:
                scalar(item, (*here, name), problems, limits.PARAMETER_TEXT)
    return [row if isinstance(row, dict) else {} for row in value]


def _names(grid: dict[str, Any], cases: list[dict[str, Scalar]], path: Path, problems: Problems) -> list[str]:
    """The names of all parameters, each one checked."""
    found = [(name, (*path, "grid", name)) for name in grid]
    found += [(name, (*path, "cases", 0, name)) for name in (cases[0] if cases else {})]
    seen: dict[str, str] = {}
    for name, where in found:
        if not isinstance(name, str) or not PARAMETER.fullmatch(name):
            better = re.sub(r"[^A-Za-z0-9_]", "_", str(name))
            hint = f"write {show(better)}" if PARAMETER.fullmatch(better) else "use letters, digits and _"
            problems.append(Problem(where, f"'{show(name)}' is not a name for a parameter", hint, key=True))
        elif len(name) > limits.PARAMETER_NAME:
            message = f"the name of a parameter has {len(name)} characters, and the limit is {limits.PARAMETER_NAME}"
            problems.append(Problem(where, message, key=True))
        elif name in FACTS:
            message = f"'{name}' cannot be a parameter: ${{{{ {name} }}}} is the job's own"
            problems.append(Problem(where, message, "choose another name", key=True))
        elif name.lower() in seen:
            other = seen[name.lower()]
            message = (
                f"'{name}' is in 'grid' and in 'cases'"
                if other == name
                else f"'{other}' and '{name}' differ in case only"
            )
            problems.append(Problem(where, message, "rename or remove one of them", key=True))
        seen[str(name).lower()] = str(name)
    return [name for name, _ in found]
