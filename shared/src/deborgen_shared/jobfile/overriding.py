"""Axes from the command line: `-p seed=1..5` replaces or adds an axis of the job file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from deborgen_shared.jobfile.loader import resolve
from deborgen_shared.jobfile.template import Scalar, references

_RANGE = re.compile(r"([-+]?\d{1,18})\.\.([-+]?\d{1,18})(?:\.\.([-+]?\d{1,18}))?", re.ASCII)

Axis = list[Scalar] | dict[str, Scalar]


def parse_axis(text: str) -> Axis:
    """An axis as a person types it: `1..5`, `0..100..10` (in steps of 10), `a,b,c`, or a single value."""
    if match := _RANGE.fullmatch(text.strip()):
        first, last, step = (int(each) if each else None for each in match.groups())
        if first is not None and last is not None and last < first and step is None:
            raise ValueError(f"the range {text.strip()} is empty: write {last}..{first}, or {first}..{last}..-1")
        axis: dict[str, Scalar] = {"from": int(match[1]), "to": int(match[2])}
        return axis | ({"step": int(match[3])} if match[3] else {})
    pieces = [piece.strip() for piece in text.split(",")]
    return [piece if (value := resolve(piece)) is None else value for piece in pieces]


def near_miss(data: object, name: str) -> str:
    """The parameter that `name` was probably meant to be; empty if the job file uses `name`, or has no similar one."""
    if not isinstance(data, dict):
        return ""
    levels = [level for level in (data, *_as_list(data.get("steps"))) if isinstance(level, dict)]
    known: set[str] = set()
    for sweep in (level.get("sweep") for level in levels):
        if isinstance(sweep, dict):
            grid = sweep.get("grid")
            known |= {str(key) for key in grid} if isinstance(grid, dict) else set()
            known |= {str(key) for row in _as_list(sweep.get("cases")) if isinstance(row, dict) for key in row}
    if name in known or any(_looks_up(level, name) for level in levels):
        return ""
    return next(iter(get_close_matches(name, known, n=1)), "")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def override(data: object, params: Mapping[str, Axis]) -> Any:
    """A copy of the data with each of these axes in the job's sweep, or in the sweeps of the steps that use its name.

    Raises ValueError for an axis whose name no step uses.
    """
    if not isinstance(data, dict) or not params:
        return data
    # A deep copy: values that YAML aliases share become separate.
    changed: dict[str, Any] = msgspec.to_builtins(data)
    for name, axis in params.items():
        for holder in _prepare_holders(changed, name):
            _set_axis(holder, name, axis)
    return changed


def _prepare_holders(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The job, or the steps, whose sweep gets the axis `name`. A step without one first gets a copy of the file's."""
    steps = data.get("steps")
    if not isinstance(steps, list):
        return [data]
    levels = [level for level in (data, *steps) if isinstance(level, dict)]
    sweeping = [level for level in levels if _sweeps(level.get("sweep"), name)]
    if sweeping:
        return sweeping
    using = [step for step in levels[1:] if _looks_up(step, name)]
    if not using:
        raise ValueError(f"no step has a parameter '{name}', and none looks it up")
    for step in using:
        if "sweep" not in step and isinstance(data.get("sweep"), dict):
            step["sweep"] = msgspec.to_builtins(data["sweep"])
    return using


def _sweeps(sweep: Any, name: str) -> bool:
    if not isinstance(sweep, dict):
        return False
    grid = sweep.get("grid")
    return _in_cases(sweep, name) or (isinstance(grid, dict) and name in grid)


def _in_cases(sweep: dict[str, Any], name: str) -> bool:
    cases = sweep.get("cases")
    return isinstance(cases, list) and any(isinstance(row, dict) and name in row for row in cases)


def _looks_up(value: Any, name: str) -> bool:
    if isinstance(value, str):
        return any(found == name for _, found in references(value))
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_looks_up(item, name) for item in items)


def _set_axis(holder: dict[str, Any], name: str, axis: Axis) -> None:
    sweep = holder.setdefault("sweep", {})
    if not isinstance(sweep, dict):
        return
    if _in_cases(sweep, name):
        rows = ({key: row[key] for key in row if key != name} for row in sweep.pop("cases") if isinstance(row, dict))
        # Rows that differed only in this parameter are now equal: keep one of them.
        if kept := {repr(row): row for row in rows if row}:
            sweep["cases"] = list(kept.values())
    grid = sweep.setdefault("grid", {})
    if isinstance(grid, dict):
        grid[name] = axis
