"""Checks of jobs that build images, and of the steps that run in those images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from deborgen_shared.jobfile.keys import OF_PROGRAMS
from deborgen_shared.jobfile.model import MAIN, Build
from deborgen_shared.jobfile.problems import Path, Problems, show
from deborgen_shared.jobfile.template import STEP_IMAGE


class Level(Protocol):
    """The checked keys of a job file or of one of its steps."""

    id: str | None
    path: Path
    values: dict[str, Any]


def check_build(top: Level, level: Level, problems: Problems) -> None:
    """Add a problem for each key that does not go with `build`, and if there is nothing to build from."""
    if "build" not in level.values:
        return
    build = level.values["build"]
    for key in OF_PROGRAMS:
        if key in level.values:
            hint = "a job that builds an image runs no program of its own: remove one of them"
            problems.add((*level.path, key), f"'{key}' does not go with 'build'", hint, key=True)
    here = (*level.path, "build")
    if not isinstance(build, Build):  # it has problems of its own
        return
    if build.git is None:
        if "files" not in level.values and not top.values.get("files"):
            problems.add(here, "'build' has no 'git', and there are no 'files'", "add one of them", key=True)
        for key, has in (("ref", build.ref != MAIN), ("submodules", build.submodules), ("key", build.key)):
            if has:
                hint = "add git: and the URL of the repository"
                problems.add((*here, key), f"'{key}' goes with 'git'", hint, key=True)
    elif "files" in level.values:
        problems.add((*level.path, "files"), "'files' does not go with 'build' from git", "remove one", key=True)


def step_images(
    levels: Sequence[Level], needs: Sequence[Sequence[str]], at: int, lookups: Iterable[str]
) -> dict[str, str]:
    """Those of the lookups that are images of steps, each with what is wrong with it in the step at this place; empty
    if nothing is."""
    wanted = {found[1]: name for name in lookups if (found := STEP_IMAGE.fullmatch(name))}
    if not wanted or len(levels) != len(needs):
        return {}
    by_id = {level.id: index for index, level in enumerate(levels) if level.id}
    before: set[str] = set()
    todo = [each for each in needs[at] if isinstance(each, str)]
    while todo:
        name = todo.pop()
        if name not in before and name in by_id:
            before.add(name)
            todo += [each for each in needs[by_id[name]] if isinstance(each, str)]
    return {
        lookup: _wrong_with(name, levels[by_id[name]].values, name in before)
        for name, lookup in wanted.items()
        if name in by_id
    }


def _wrong_with(name: str, values: Mapping[str, Any], is_needed: bool) -> str:
    if "build" not in values:
        return f"step '{name}' builds no image"
    if "sweep" in values:
        return f"step '{name}' has a sweep, so it builds more than one image"
    return "" if is_needed else f"this step does not need step '{name}': add it to 'needs'"


def explain_step_image(name: str, known: Mapping[str, str]) -> tuple[str, str] | None:
    """Message and hint for a lookup of a step's image that is wrong; None if this is no such lookup."""
    match = STEP_IMAGE.fullmatch(name)
    if match is None:
        return None
    why = known.get(name) or f"there is no step '{show(match[1])}'"
    return f"'{show(name)}' is not known here: {why}", "name a step above that has 'build' and no sweep"
