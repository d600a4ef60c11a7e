"""How a container ended, from what its engine, the kernel and the worker know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deborgen_worker.runners.containers.engine import ContainerInfo, ContainerState
from deborgen_worker.runners.containers.judging import judge, program_fault
from deborgen_worker.runners.containers.usage import Usage
from deborgen_worker.runners.podman.reading import container_info, host_from
from deborgen_worker.runners.protocol import Launch

LAUNCH = Launch(
    attempt="1.1/1", argv=("prog",), env={}, folder=Path("/f"), workspace=Path("/f/work"), image="i", memory=100 << 20,
    timeout_seconds=60.0,
)  # fmt: skip
NEVER = "0001-01-01T00:00:00Z"
BEGAN, FINISHED = "2026-01-02T03:04:05.5Z", "2026-01-02T03:04:07Z"


def seen(code: int, **more: Any) -> ContainerInfo:
    return ContainerInfo(id="c", attempt="1.1/1", state=ContainerState.ENDED, code=code, **more)


def test_a_programs_run_time_is_from_its_start_to_its_end_and_not_until_anyone_asked() -> None:
    assert judge(LAUNCH, seen(0, started_at=100.0, finished_at=103.0), Usage(), watched=900.0).seconds == 3.0
    assert judge(LAUNCH, seen(0), Usage(), watched=9.0).seconds == 9.0


@pytest.mark.parametrize(
    ("what", "code", "facts", "usage", "more", "expected"),
    [
        ("the engine says so", 1, {"oom_killed": True}, Usage(), {}, True),
        ("the kernel counted it", 1, {}, Usage(oom_kills=1), {}, True),
        ("the kernel counted it, at its limit", 1, {}, Usage(oom_kills=1, limit_hits=3), {}, True),
        ("the machine had too little", 137, {"oom_killed": True}, Usage(oom_kills=1, limit_hits=0), {}, False),
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


def test_a_program_that_cannot_be_executed_ends_as_in_a_shell_but_a_broken_machine_is_an_error() -> None:
    missing = program_fault(LAUNCH, 'exec: "prog": executable file not found in $PATH')
    forbidden = program_fault(LAUNCH, 'exec: "prog": permission denied')
    assert missing is not None
    assert forbidden is not None
    assert (missing.code, forbidden.code) == (127, 126)
    assert program_fault(LAUNCH, "no space left on device") is None


@pytest.mark.parametrize(
    ("status", "began", "finished", "state"),
    [
        ("created", NEVER, NEVER, ContainerState.CREATED),
        ("created", BEGAN, NEVER, ContainerState.LOST),
        ("running", BEGAN, NEVER, ContainerState.RUNNING),
        ("paused", BEGAN, NEVER, ContainerState.PAUSED),
        ("stopped", BEGAN, FINISHED, ContainerState.ENDED),
        ("exited", BEGAN, FINISHED, ContainerState.ENDED),
        ("exited", BEGAN, NEVER, ContainerState.LOST),
        ("removing", BEGAN, FINISHED, ContainerState.LOST),
    ],
)
def test_podmans_states_are_checked_against_its_times(
    status: str, began: str, finished: str, state: ContainerState
) -> None:
    """After a power cut Podman calls a container that was running `created`, with exit code 0."""
    found = {"Id": "c", "Config": {"Labels": None}, "State": {"Status": status, "ExitCode": 0}}
    found["State"] |= {"StartedAt": began, "FinishedAt": finished}  # type: ignore[operator]
    assert container_info(found).state is state


def test_a_host_that_cannot_limit_says_so() -> None:
    able = {"cgroupVersion": "v2", "cgroupControllers": ["cpu", "memory", "pids"], "security": {"rootless": True}}
    assert host_from({"host": able}).warnings == []
    unable = able | {"cgroupVersion": "v1"}
    found = host_from({"host": unable, "version": {"Version": "4.3.1"}})
    assert found.labels["podman"] == "4.3.1"
    assert not any(found.labels[f"limits.{each}"] for each in ("memory", "cpu", "pids"))
    assert "this host cannot limit the memory of a container (rootless, cgroups v1)" in found.warnings
