"""The `sweep` key: turns its value into a Sweep, or finds the problems in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.kinds import Shape, check_scalar, choice, describe, is_number, scalar_shape, shaped
from deborgen_shared.jobfile.problems import Path, Problems, did_you_mean, differ_in_case, show, subject
from deborgen_shared.jobfile.structure import check_mapping, mapping_shape, record_shape, report_unknown_key
from deborgen_shared.jobfile.sweep import Sweep, integers, linear, logarithmic, stepped, stepped_count
from deborgen_shared.jobfile.template import Scalar
from deborgen_shared.jobfile.values import parameter_name

SWEEP_KEYS = ("grid", "cases", "exclude")
RANGE_KEYS = ("from", "to", "step", "count", "scale")
#: Words of other tools for the keys of a range.
_RANGE_ELSEWHERE = {
    **dict.fromkeys(("start", "first", "begin", "min", "low"), "from"),
    **dict.fromkeys(("stop", "end", "last", "max", "high"), "to"),
    **dict.fromkeys(("num", "n", "points"), "count"),
}
AXIS_EXAMPLE = "[1, 2, 3] or {from: 1, to: 20}"
SWEEP_EXAMPLE = "{grid: {seed: {from: 1, to: 20}}}"

_RANGE_IN_TEXT = re.compile(r"(-?\d{1,18})\s*(?:\.\.+|-)\s*(-?\d{1,18})")
_PARAMETER: Shape = scalar_shape(limits.PARAMETER_TEXT)
_NUMBER: Shape = {"type": "number", "minimum": limits.INTEGER[0], "maximum": limits.INTEGER[1]}
_ENDS = {"from": _NUMBER, "to": _NUMBER}
_COUNT: Shape = {"type": "integer", "minimum": 2, "maximum": limits.AXIS_VALUES}
_SCALE = choice("linear", "log")
_AXIS: Shape = {
    "description": "A list of values, an inclusive range, or evenly spaced numbers.",
    "anyOf": [
        {"type": "array", "items": _PARAMETER, "minItems": 1, "maxItems": limits.AXIS_VALUES, "uniqueItems": True},
        record_shape({**_ENDS, "step": _NUMBER}, ("from", "to")),
        record_shape({**_ENDS, "count": _COUNT, "scale": _SCALE.shape}, ("from", "to", "count")),
    ],
}
_ROW: Shape = mapping_shape(parameter_name.shape, _PARAMETER, limits.AXES) | {"minProperties": 1}
_SWEEP: Shape = record_shape(
    {
        "grid": mapping_shape(parameter_name.shape, _AXIS, limits.AXES) | {"minProperties": 1},
        "cases": {"type": "array", "items": _ROW, "minItems": 1, "maxItems": limits.CASES},
        "exclude": {"type": "array", "items": _ROW, "maxItems": limits.EXCLUDES},
    }
) | {"anyOf": [{"required": ["grid"]}, {"required": ["cases"]}]}


@shaped(_SWEEP)
def sweep(value: Any, path: Path, problems: Problems) -> Sweep | None:
    """The sweep, or None when it has problems."""
    before = len(problems)
    if not check_mapping(value, path, problems, f"write for example {SWEEP_EXAMPLE}"):
        return None
    for key, item in value.items():
        if key not in SWEEP_KEYS:
            hint = f"write it as {{grid: {{{show(key)}: ...}}}}" if isinstance(item, (list, dict)) else None
            report_unknown_key(key, SWEEP_KEYS, path, problems, otherwise=hint)
    grid = _grid(value["grid"], (*path, "grid"), problems) if "grid" in value else {}
    cases = _cases(value["cases"], (*path, "cases"), problems) if "cases" in value else []
    if len(problems) == before and not grid and not cases:
        problems.about(path, "has no 'grid' and no 'cases'", f"write {SWEEP_EXAMPLE}")
    names = _names(grid, cases, path, problems)
    exclude = _exclude(value.get("exclude", []), (*path, "exclude"), names, problems)
    return Sweep(grid, cases, exclude) if len(problems) == before else None


def _grid(value: Any, path: Path, problems: Problems) -> dict[str, Sequence[Scalar]]:
    if not check_mapping(value, path, problems, "write for example {seed: [1, 2, 3]}", limits.AXES):
        return {}
    if not value:
        problems.about(path, "has no axis", "write {seed: [1, 2, 3]}")
    return {name: _axis(item, (*path, name), problems) for name, item in value.items()}


def _axis(value: Any, path: Path, problems: Problems) -> Sequence[Scalar]:
    if isinstance(value, dict):
        return _range(value, path, problems)
    if not isinstance(value, list):
        hint = f"write [{show(value)}]" if isinstance(value, (str, int, float)) else f"write {AXIS_EXAMPLE}"
        if isinstance(value, str) and (match := _RANGE_IN_TEXT.fullmatch(value.strip())):
            hint = f"write {{from: {match[1]}, to: {match[2]}}}"
        problems.about(path, f"must be a list or a range, not {describe(value)}", hint, noun="axis")
        return []
    if not value:
        problems.about(path, "has no values", f"write {AXIS_EXAMPLE}", noun="axis")
    if len(value) > limits.AXIS_VALUES:
        _report_too_many(len(value), path, problems)
        return []
    seen = set()
    for index, item in enumerate(value):
        if check_scalar(item, (*path, index), problems, limits.PARAMETER_TEXT):
            if item in seen:
                message = f"the value {show(item)} is listed twice in {subject(path)}"
                problems.add((*path, index), message, "remove one: each combination runs once")
            seen.add(item)
    return value


def _range(value: dict[Any, Any], path: Path, problems: Problems) -> Sequence[Scalar]:
    before = len(problems)
    renamed = set()
    for key, item in value.items():
        if key not in RANGE_KEYS:
            if meant := _RANGE_ELSEWHERE.get(str(key).lower()):
                renamed.add(meant)
                message = f"unknown key '{show(key)}' in {subject(path)}"
                problems.add((*path, str(key)), message, f"write {meant}: instead", key=True)
            else:
                report_unknown_key(key, RANGE_KEYS, path, problems)
        elif key == "scale":
            _SCALE.check(item, (*path, key), problems)
        elif not is_number(item):
            problems.wrong_kind(item, (*path, key), "a number", "ranges are for numbers: for text, write a list")
        else:
            check_scalar(item, (*path, key), problems, 0)  # a number: the limit, which is for text, does not matter
    for key in ("from", "to"):
        if key not in value and key not in renamed:
            problems.about(path, f"has no '{key}'", "write {from: 1, to: 20}", noun="range")
    if len(problems) > before:
        return []
    if "count" in value:
        return _spaced(value, path, problems)
    if "scale" in value:
        problems.about(path, "has a 'scale' but no 'count'", "add count: 10", noun="range")
        return []
    return _stepped(value, path, problems)


def _stepped(value: dict[str, Any], path: Path, problems: Problems) -> Sequence[Scalar]:
    first, last, step = value["from"], value["to"], value.get("step", 1)
    if step == 0:
        problems.about((*path, "step"), "is 0", "write 1, or remove it")
        return []
    whole = isinstance(first, int) and isinstance(last, int) and isinstance(step, int)
    if not whole and "step" not in value:
        hint = "add count: 10 (and scale: log), or step: 0.1"
        problems.about(path, "does not consist of whole numbers", hint, noun="range")
        return []
    count = (last - first) // step + 1 if whole else stepped_count(first, last, step)
    if count < 1:
        hint = "swap them, or write step: -1" if "step" not in value else "the step leads away from 'to'"
        problems.about(path, f"is empty: from {first} to {last}", hint, noun="range")
    elif count > limits.AXIS_VALUES:
        _report_too_many(count, path, problems)
    elif whole:
        return integers(first, last, step)
    else:
        return _distinct(stepped(first, last, step), path, problems)
    return []


def _spaced(value: dict[str, Any], path: Path, problems: Problems) -> Sequence[Scalar]:
    first, last, count = value["from"], value["to"], value["count"]
    if "step" in value:
        problems.about(path, "has both 'count' and 'step'", "remove one of them", noun="range")
    elif not isinstance(count, int) or count < 2:
        hint = "for a single value write a list: [1]"
        problems.about((*path, "count"), f"must be a whole number of at least 2, not {show(count)}", hint)
    elif count > limits.AXIS_VALUES:
        _report_too_many(count, path, problems)
    elif first == last:
        message = f"goes from {first} to {last}, so it has only one value"
        problems.about(path, message, f"write [{first}]", noun="range")
    elif value.get("scale") == "log" and (first <= 0 or last <= 0):
        hint = "use scale: linear, or start above 0"
        problems.about(path, "with scale: log must stay above 0", hint, noun="range")
    else:
        spaced = logarithmic if value.get("scale") == "log" else linear
        return _distinct(spaced(first, last, count), path, problems)
    return []


def _distinct(axis: Sequence[Scalar], path: Path, problems: Problems) -> Sequence[Scalar]:
    """The axis, after a check that its values are finite and different numbers."""
    if len(axis) > 1:
        near = (axis[0], axis[1], axis[-2], axis[-1])
        if not all(isinstance(value, (int, float)) and isfinite(value) for value in near):
            problems.about(path, "is too wide to compute", "write a smaller range", noun="range")
        elif near[0] == near[1] or near[2] == near[3]:
            # Neighbouring values are closest to each other at one of the two ends, so checking the ends is enough.
            hint = "lower the count, or widen the range"
            problems.about(path, "has values too close to tell apart at 12 digits", hint, noun="range")
    return axis


def _report_too_many(count: int, path: Path, problems: Problems) -> None:
    size = f"{count:,}" if count < 10**15 else "more than 10^15"
    message = f"has {size} values, but the limit is {limits.AXIS_VALUES:,}"
    problems.about(path, message, "write a smaller range", noun="axis")


def _cases(value: Any, path: Path, problems: Problems) -> list[dict[str, Scalar]]:
    rows = _rows(value, path, problems, limits.CASES, "[{mass: 1.0, length: 0.5}, {mass: 2.0, length: 1.5}]")
    if isinstance(value, list) and not value:
        problems.about(path, "is an empty list", "add a case, or remove the line")
    for index, row in enumerate(rows):
        if row and rows[0] and row.keys() != rows[0].keys():
            lacks = [name for name in rows[0] if name not in row]
            extra = [name for name in row if name not in rows[0]]
            what = f"has no '{show(lacks[0])}'" if lacks else f"has an extra '{show(extra[0])}'"
            message = f"this case {what}: all cases must have the same parameters"
            problems.add((*path, index), message, f"the first one has {show(', '.join(map(str, rows[0])))}")
    return rows


def _exclude(value: Any, path: Path, names: list[str], problems: Problems) -> list[dict[str, Scalar]]:
    rows = _rows(value, path, problems, limits.EXCLUDES, "[{method: euler, dt: 1e-4}]")
    for index, row in enumerate(rows):
        for name in row:
            if name not in names:
                hint = did_you_mean(name, names, f"parameters: {show(', '.join(map(str, names)))}" if names else "")
                message = f"{subject(path)} names '{show(name)}', which is not a parameter of this sweep"
                problems.add((*path, index, name), message, hint, key=True)
    if len({frozenset(row) for row in rows}) > limits.EXCLUDE_SHAPES:
        hint = "make the rows more alike, or list the cases instead"
        problems.about(path, f"uses more than {limits.EXCLUDE_SHAPES} different sets of parameters", hint)
    return rows


def _rows(value: Any, path: Path, problems: Problems, limit: int, example: str) -> list[dict[str, Scalar]]:
    """A list of mappings from names to scalars. An item that is not a mapping becomes an empty one."""
    if not isinstance(value, list):
        problems.wrong_kind(value, path, "a list of mappings", f"write for example {example}")
        return []
    if problems.exceeds(path, len(value), limit):
        return []
    for index, row in enumerate(value):
        here = (*path, index)
        if not isinstance(row, dict) or not row:
            problems.about(here, "must be a mapping of parameters", f"as in {example}")
            continue
        if problems.exceeds(here, len(row), limits.AXES):
            return []
        for name, item in row.items():
            if isinstance(item, (list, dict)):
                problems.wrong_kind(item, (*here, name), "one value", "several values belong in 'grid'")
            else:
                check_scalar(item, (*here, name), problems, limits.PARAMETER_TEXT)
    return [row if isinstance(row, dict) else {} for row in value]


def _names(grid: dict[str, Any], cases: list[dict[str, Scalar]], path: Path, problems: Problems) -> list[str]:
    """The names of all parameters, after checking each of them."""
    found = [(name, (*path, "grid", name)) for name in grid]
    found += [(name, (*path, "cases", 0, name)) for name in (cases[0] if cases else {})]
    seen: dict[str, str] = {}
    for name, where in found:
        before = len(problems)
        parameter_name.check(name, where, problems)
        if len(problems) == before and name.lower() in seen:
            other = seen[name.lower()]
            both = f"'{name}' is in both 'grid' and 'cases'" if other == name else differ_in_case(other, name)
            problems.add(where, both, "rename or remove one of them", key=True)
        seen[str(name).lower()] = str(name)
    return [name for name, _ in found]
