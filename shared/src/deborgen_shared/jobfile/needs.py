"""Checks the `needs` of the steps: they exist, there is no circle, and no file is where their artifacts appear."""

from __future__ import annotations

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Any

from deborgen_shared.jobfile import limits
from deborgen_shared.jobfile.paths import INPUTS, PREVIOUS, fold
from deborgen_shared.jobfile.problems import Path, Problems, did_you_mean, show, subject

STEP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def check_needs(steps: list[Any], ids: list[str | None], problems: Problems) -> list[list[str]]:
    """The needs of each step. By default, a step needs the one above it."""
    known = {step_id: None for step_id in ids if step_id}
    needs: list[list[str]] = []
    before = len(problems)
    for index, step in enumerate(steps):
        if isinstance(step, dict) and "needs" in step:
            needs.append(_check_written(step["needs"], ("steps", index, "needs"), ids[index], known, problems))
        else:
            above = ids[index - 1] if index else None
            needs.append([above] if above else [])
    if len(problems) == before and len(known) == len(steps):
        _check_no_circle(steps, list(known), needs, problems)
    return needs


def _check_written(value: Any, path: Path, own: str | None, known: dict[str, None], problems: Problems) -> list[str]:
    if not isinstance(value, list):
        hint = f"write [{show(value)}]" if isinstance(value, str) and value else "write [prepare], or [] for none"
        problems.wrong_kind(value, path, "a list of steps", hint)
        return []
    if problems.exceeds(path, len(value), limits.NEEDS):
        return []
    for index, item in enumerate(value):
        here = (*path, index)
        if item == own and own is not None:
            problems.add(here, f"step '{show(item)}' needs itself", "remove it")
        elif not isinstance(item, str) or item not in known:
            others = [step_id for step_id in known if step_id != own]
            hint = did_you_mean(item, others, f"steps: {', '.join(others[:10])}" if others else "")
            problems.add(here, f"there is no step '{show(item)}'", hint)
        elif item in value[:index]:
            problems.add(here, f"'{show(item)}' is listed twice in {subject(path)}")
    return value


def _check_no_circle(steps: list[Any], ids: list[str], needs: list[list[str]], problems: Problems) -> None:
    wants = dict(zip(ids, needs, strict=True))
    try:
        TopologicalSorter(wants).prepare()
    except CycleError as error:
        # Start the circle at the step that comes first in the file; each step is followed by one that it needs.
        circle = error.args[1][:0:-1]
        start = min(range(len(circle)), key=lambda place: ids.index(circle[place]))
        circle = [*circle[start:], *circle[: start + 1]]
    else:
        return
    first = ids.index(circle[0])
    implied = [step_id for step_id in circle[1:] if "needs" not in steps[ids.index(step_id)]]
    hint = f"'{implied[0]}' needs the step above unless it says needs: []" if implied else "remove one of these needs"
    path: Path = ("steps", first, "needs") if "needs" in steps[first] else ("steps", first, "id")
    problems.add(path, f"the steps need each other in a circle: {' → '.join(circle)}", hint)


def check_inputs(steps: Iterable[tuple[Path, list[Any], list[str]]], problems: Problems) -> None:
    """Add a problem for each file of a step that is where the artifacts of a needed step will appear.

    Each entry of `steps` is one step: the path of its list of files, the files, and the steps that it needs. For a loop
    `PREVIOUS` is one of them. Steps that inherit the same files are checked together.
    """
    taken: dict[Path, dict[str, str]] = {}
    lists: dict[Path, list[Any]] = {}
    for path, files, needs in steps:
        lists[path] = files
        taken.setdefault(path, {}).update({f"{INPUTS}/{fold(step)}": step for step in needs if isinstance(step, str)})
    for path, files in lists.items():
        places = taken[path]
        for index, file in enumerate(files if places else ()):
            name = getattr(file, "path", file)
            place = "/".join(fold(name).split("/")[:2]) if isinstance(name, str) else ""
            is_uploaded = name is not file  # an uploaded entry is always a file; a hand-written path may be a folder
            if place == INPUTS and is_uploaded:  # a file named like the folder of all artifacts
                place = next(iter(places))
            if place in places:
                made = "the last round" if places[place] == PREVIOUS else f"step '{places[place]}'"
                message = f"the path '{show(name)}' is where the artifacts of {made} appear"
                problems.add((*path, index), message, f"they are at {INPUTS}/{places[place]}/: choose another name")
