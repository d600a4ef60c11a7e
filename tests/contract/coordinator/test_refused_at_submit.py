"""What can never work is refused when it is submitted, at its place in the job file."""

from __future__ import annotations

from typing import Any

import pytest

from deborgen_coordinator.operations.runs.submit import check
from deborgen_shared.errors import Code, Refusal
from support.in_process import InProcessCoordinator, person

DIGEST = "0" * 64


@pytest.fixture
def database() -> str:
    """SQLite alone: nothing here reaches the database."""
    return ""


def problems(pool: InProcessCoordinator, **document: Any) -> list[str]:
    """The places of the problems for which both a check and a submit refuse this document."""
    found = []
    for act in (lambda: pool.submit(**document), lambda: check(pool.ctx, person("alice"), {"run": "true", **document})):
        with pytest.raises(Refusal) as refused:
            act()
        assert refused.value.code is Code.INVALID_JOB
        found.append([each["path"] for each in refused.value.details["problems"]])
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("pattern", ["[z-a]", "[!]x]", "out/[]", "logs/[0-9.txt"])
def test_fault_93_a_broken_pattern_is_refused_at_submit(pool: InProcessCoordinator, pattern: str) -> None:
    """Seen to fail when no class of a pattern is checked."""
    assert problems(pool, artifacts=["out/*.png", pattern]) == ["artifacts[1]"]
    assert problems(pool, artifacts=[{"path": pattern, "when": "always"}]) == ["artifacts[0].path"]


@pytest.mark.parametrize(
    "image", ["Python", "docker://python", "python:", "python@sha256:0f", "a//b", "r.example.org:0/a"]
)
def test_fault_93_a_name_that_no_image_can_have_is_refused_at_submit(pool: InProcessCoordinator, image: str) -> None:
    """Seen to fail when any text may be the name of an image."""
    assert problems(pool, image=image) == ["image"]


@pytest.mark.parametrize("path", [".deborgen", ".deborgen/params.json", ".Deborgen/x"])
def test_fault_93_a_file_in_a_reserved_place_is_refused_at_submit(pool: InProcessCoordinator, path: str) -> None:
    """Seen to fail when a file may lie anywhere in the workspace."""
    assert problems(pool, files=[{"path": path, "sha256": DIGEST, "size": 1}]) == ["files[0].path"]


def test_files_among_the_inputs_of_a_step_are_refused_at_submit(pool: InProcessCoordinator) -> None:
    file = {"sha256": DIGEST, "size": 1}
    steps = [{"id": "a", "run": "true"}, {"id": "b", "run": "true", "files": [{"path": "inputs/a/x", **file}]}]
    assert problems(pool, run="true", steps=steps) != []
    with pytest.raises(Refusal) as refused:
        pool.submit(steps=steps)
    assert [each["path"] for each in refused.value.details["problems"]] == ["steps[1].files[0]"]


def test_fault_96_an_image_from_a_registry_that_the_pool_does_not_allow_is_refused_at_its_line(make_pool: Any) -> None:
    """Seen to fail when the pool takes images from anywhere."""
    pool = make_pool(registries=frozenset({"public", "10.0.0.1:5000"}))
    for image in ("127.0.0.1:5000/x", "localhost:5000/x", "10.0.0.1/x", "169.254.169.254/x"):
        assert problems(pool, image=image) == ["image"], image
    assert problems(pool, image="${{ r }}/x", sweep={"grid": {"r": ["r.example.org", "10.0.0.2:22"]}}) == ["image"]
    for image in ("python:3.12", "localhost/mine", "10.0.0.1:5000/x", "registry.example.org:5000/x"):
        assert pool.submit(image=image).id
    few = make_pool(registries=frozenset({"registry.example.org"}))
    assert problems(few, image="python:3.12") == ["image"]
    assert few.submit(image="registry.example.org/python:3.12").id
