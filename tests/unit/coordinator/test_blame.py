"""Whose fault infrastructure failures are, and what they mean for the machine."""

from __future__ import annotations

import pytest

from deborgen_coordinator.blame import (
    FAILURES_BEFORE_REST,
    LONGEST_AVOID,
    LONGEST_REST,
    Failure,
    MachinePause,
    avoid_seconds,
    count_own_failures,
    image_of,
    image_subject,
    pause_after,
    workspace_subject,
)
from deborgen_shared.states import Cause, Outcome

ALICE, BOB = 1, 2
PYTHON, TYPO, HOME = image_subject("python"), image_subject("pyhton"), workspace_subject(None)


def failure(kind: str, subject: str = PYTHON, submitter: int = ALICE) -> Failure:
    return Failure(subject, submitter, kind)


@pytest.mark.parametrize(
    ("what", "failures", "own"),
    [
        ("one person's mistake", [failure(Cause.IMAGE_UNKNOWN, TYPO)] * 5, 0),
        ("two people's mistakes", [failure(Cause.IMAGE_UNKNOWN, TYPO), failure(Cause.IMAGE_REFUSED, "x", BOB)] * 3, 0),
        ("a mistake and a loss", [*[failure(Cause.IMAGE_UNKNOWN, TYPO)] * 4, failure(Outcome.LOST, HOME, BOB)], 0),
        ("an image that works elsewhere", [failure(Cause.REGISTRY_UNREACHABLE)] * 5, 5),
        ("the same among mistakes", [failure(Cause.IMAGE_UNKNOWN, TYPO), failure(Cause.REGISTRY_UNREACHABLE)] * 3, 3),
        ("a registry that its owner does not allow", [failure(Cause.IMAGE_NOT_ALLOWED)] * 5, 0),
        ("two people, the same reason", [failure(Outcome.ERROR, TYPO), failure(Outcome.ERROR, "x", BOB)] * 3, 0),
        ("two people, two reasons", [failure(Outcome.ERROR, TYPO), failure(Cause.WORKSPACE, "x", BOB)] * 3, 6),
        ("one person, two reasons", [failure(Outcome.ERROR, TYPO), failure(Cause.WORKSPACE, "x")] * 3, 0),
    ],
)
def test_a_failure_is_the_machines_own_only_for_good_reasons(what: str, failures: list[Failure], own: int) -> None:
    """Elsewhere, only the image PYTHON works."""
    assert count_own_failures(failures, {PYTHON}.__contains__) == own, what


def test_pauses_grow_to_a_minute_no_matter_whose_fault_the_failures_are() -> None:
    assert [pause_after(count, 0, 0) for count in (1, 4)] == [MachinePause(0.0)] * 2
    assert [pause_after(count, 0, 0).seconds for count in (5, 6, 7, 8, 9, 10, 5000)] == [2, 4, 8, 16, 32, 60, 60]
    assert not any(pause_after(count, 4, 9).rest for count in range(100))


def test_a_rest_is_for_failures_of_its_own_and_is_longer_each_time_up_to_a_day() -> None:
    rests = [pause_after(5, FAILURES_BEFORE_REST, rests) for rests in (0, 1, 2, 20, 5000)]
    assert [pause.seconds for pause in rests] == [600.0, 1200.0, 2400.0, LONGEST_REST, LONGEST_REST]
    assert all(pause.rest for pause in rests)


def test_other_machines_come_first_for_a_minute_and_for_longer_each_time_up_to_an_hour() -> None:
    assert [avoid_seconds(count) for count in (1, 2, 3, 9, 5000)] == [60.0, 120.0, 240.0, LONGEST_AVOID, LONGEST_AVOID]


def test_a_subject_is_an_image_or_a_workspace() -> None:
    assert image_of(image_subject("a/b:1@sha256:0")) == "a/b:1@sha256:0"
    assert image_of(workspace_subject(7)) == image_of(workspace_subject(None)) == ""
    assert workspace_subject(7) != workspace_subject(None)
