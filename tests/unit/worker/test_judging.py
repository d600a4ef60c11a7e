"""How a container ended, from what its engine, the kernel and the worker know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deborgen_worker.runners.containers.engine import Seen, State
from deborgen_worker.runners.containers.judging import fault_of_the_program, judge
from deborgen_worker.runners.containers.usage import Usage
from deborgen_worker.runners.podman.reading import host_in, seen_in
from deborgen_worker.runners.protocol import Launch

LAUNCH = Launch(
    attempt="1.1/1", argv=("prog",), env={}, folder=Path("/f"), workspace=Path("/f/work"), image="i", memory=100 << 20,
    timeout_seconds=60.0,
)  # fmt: skip
NEVER = "0001-01-01T00:00:00Z"
BEGAN, FINISHED = "2026-01-02T03:04:05.5Z", "2026-01-02T03:04:07Z"


def seen(code: int, **more: Any) -> Seen:
    return Seen(id="c", attempt="1.1/1", state=State.ENDED, code=code, **more)


def test_a_program_lasted_from_its_start_to_its_end_and_not_until_it_was_asked_about() -> None:
    assert judge(LAUNCH, seen(0, started_at=100.0, finished_at=103.0), Usage(), watched=900.0).seconds == 3.0
    assert judge(LAUNCH, seen(0), Usage(), watched=9.0).seconds == 9.0


@pytest.mark.parametrize(
    ("what", "code", "facts", "usage", "more", "expected"),
    [
        ("the engine says so", 1, {"oom_killed": True}, Usage(), {}, True),
        ("the kernel counted it", 1, {}, Usage(oom_kills=1), {}, True),
        ("killed at its limit", 137, {}, Usage(peak_memory=100 << 20), {}, True),
        ("killed far below its limit", 137, {}, Usage(peak_memory=1 << 20), {"marked": True}, False),
        ("killed, and a mark was left", 137, {}, Usage(), {"marked": True}, True),
        ("killed, and no mark was left", 137, {}, Usage(), {}, False),
        ("not killed, and a mark was left by another", 1, {}, Usage(), {"marked": True}, False),
        ("the worker killed it", 137, {"oom_killed": True}, Usage(), {"signalled": True}, False),
        ("it succeeded in spite of it", 0, {"oom_killed": True}, Usage(oom_kills=1), {}, False),
    ],
)
def test_out_of_memory_has_several_signs(
    what: str, code: int, facts: dict[str, Any], usage: Usage, more: dict[str, Any], expected: bool
) -> None:
    found = judge(LAUNCH, seen(code, **facts), usage, **more)
    assert found.out_of_memory is expected, what
    assert ("more memory than the 100MiB" in found.reason) is expected


def test_a_program_that_cannot_be_executed_ends_as_in_a_shell_and_a_broken_machine_does_not() -> None:
    missing = fault_of_the_program(LAUNCH, 'exec: "prog": executable file not found in $PATH')
    forbidden = fault_of_the_program(LAUNCH, 'exec: "prog": permission denied')
    assert missing is not None
    assert forbidden is not None
    assert (missing.code, forbidden.code) == (127, 126)
    assert fault_of_the_program(LAUNCH, "no space left on device") is None


@pytest.mark.parametrize(
    ("status", "began", "finished", "state"),
    [
        ("created", NEVER, NEVER, State.CREATED),
        ("created", BEGAN, NEVER, State.LOST),
        ("running", BEGAN, NEVER, State.RUNNING),
        ("paused", BEGAN, NEVER, State.PAUSED),
        ("stopped", BEGAN, FINISHED, State.ENDED),
        ("exited", BEGAN, FINISHED, State.ENDED),
        ("exited", BEGAN, NEVER, State.LOST),
        ("removing", BEGAN, FINISHED, State.LOST),
    ],
)
def test_podmans_words_for_a_state_are_not_believed_without_its_times(
    status: str, began: str, finished: str, state: State
) -> None:
    """A container that ran when the power failed is called `created`, with the exit code 0."""
    found = {"Id": "c", "Config": {"Labels": None}, "State": {"Status": status, "ExitCode": 0}}
    found["State"] |= {"StartedAt": began, "FinishedAt": finished}  # type: ignore[operator]
    assert seen_in(found).state is state


def test_a_host_that_cannot_limit_says_so() -> None:
    able = {"cgroupVersion": "v2", "cgroupControllers": ["cpu", "memory", "pids"], "security": {"rootless": True}}
    assert host_in({"host": able}).warnings == []
    unable = able | {"cgroupVersion": "v1"}
    found = host_in({"host": unable, "version": {"Version": "4.3.1"}})
    assert found.labels["podman"] == "4.3.1"
    assert not any(found.labels[f"limits.{each}"] for each in ("memory", "cpu", "pids", "disk"))
    assert "this host cannot limit the memory of a container (rootless, cgroups v1)" in found.warnings
