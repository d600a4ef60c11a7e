"""How a job's own events are sent: while it runs, at its end, after a restart, and when they are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deborgen_shared.client.transport import Refused
from deborgen_shared.errors import Code
from deborgen_shared.messages import Heartbeat, HeartbeatAnswer, ProgramEvent
from deborgen_shared.program_events import EVENTS_PER_REQUEST
from deborgen_worker.attempts import Exit, StopCause
from deborgen_worker.log_pump import REQUESTS_IN_A_ROW
from support.worker_in_steps import SteppedWorker, running

NAME = "1.1/1"


@pytest.fixture
def world(tmp_path: Path) -> SteppedWorker:
    """A worker with one job that runs until the test ends it."""
    world = SteppedWorker(tmp_path, running)
    world.queue(NAME)
    world.take()
    return world


def write(world: SteppedWorker, *types: str, text: str = "") -> None:
    """The job appends to its file: events of these types, and then the text."""
    made = world.agent.execution(NAME)
    assert made is not None
    path = Path(made.launch.env["DEBORGEN_EVENTS"])
    with path.open("a") as file:
        file.write("".join(json.dumps({"type": each}) + "\n" for each in types) + text)


def end(world: SteppedWorker, code: int = 0) -> None:
    world.runner.end(NAME, Exit(code=code, seconds=1.0))


def had(world: SteppedWorker) -> list[str | None]:
    """The types of the events that the coordinator has, in order."""
    return [each.type if each is not None else None for each in world.coordinator.events_of.get(NAME, [])]


def requests(world: SteppedWorker) -> list[Any]:
    return [message for name, message in world.coordinator.calls if name == "events"]


def test_events_are_sent_while_the_job_runs(world: SteppedWorker) -> None:
    write(world, "a", "b", text='{"type": ')
    world.pump.step()
    assert had(world) == ["a", "b"]
    write(world, text='"c"}\n')
    world.pump.step()
    world.pump.step()
    assert had(world) == ["a", "b", "c"]
    assert [first for _, first, _ in requests(world)] == [0, 2]


def test_a_job_that_writes_no_events_sends_none(world: SteppedWorker) -> None:
    world.pump.step()
    end(world)
    world.outbox.step()
    assert world.outcomes == {NAME: "succeeded"}
    assert requests(world) == []


def test_the_remaining_events_are_sent_before_the_result(world: SteppedWorker) -> None:
    """Seen to fail when the result does not wait for the events."""
    write(world, "a")
    world.pump.step()
    write(world, "b", text='{"type": "c"}')
    end(world)
    world.coordinator.away = {"events"}
    for _ in range(3):
        world.deliver()
    assert (world.outcomes, had(world)) == ({}, ["a"])
    world.coordinator.away = set()
    world.deliver()
    assert (world.outcomes, had(world)) == ({NAME: "succeeded"}, ["a", "b", "c"])
    names = [name for name, _ in world.coordinator.calls]
    assert names.index("finish") > max(at for at, name in enumerate(names) if name == "events")


def test_a_result_whose_events_were_all_sent_needs_no_upload(world: SteppedWorker) -> None:
    write(world, "a", "b")
    world.pump.step()
    end(world)
    world.outbox.step()
    assert world.outcomes == {NAME: "succeeded"}


@pytest.mark.parametrize("sent", [0, 1, 3])
def test_a_restarted_worker_sends_what_is_missing_and_nothing_twice(world: SteppedWorker, sent: int) -> None:
    write(world, *[f"e{number}" for number in range(sent)])
    world.pump.step()
    write(world, *[f"e{number}" for number in range(sent, 5)])
    world.wake(boot="boot")
    write(world, "e5")
    world.pump.step()
    assert had(world) == [f"e{number}" for number in range(6)]
    end(world)
    world.deliver()
    assert (world.outcomes, had(world)) == ({NAME: "succeeded"}, [f"e{number}" for number in range(6)])


@pytest.mark.parametrize("boot", ["boot", "another boot"])
def test_events_of_a_job_that_ended_before_the_restart_come_before_its_result(world: SteppedWorker, boot: str) -> None:
    write(world, "a", "b")
    end(world)
    world.spool.commit()
    world.wake(boot)
    world.deliver()
    assert (world.outcomes, had(world)) == ({NAME: "succeeded"}, ["a", "b"])


def test_a_coordinator_that_is_away_gets_everything_when_it_is_back(world: SteppedWorker) -> None:
    world.coordinator.away = {"events"}
    for number in range(700):
        write(world, f"e{number}")
        if number % 100 == 0:
            world.now += 100.0
            world.pump.step()
    world.coordinator.away = set()
    world.now += 100.0
    world.pump.step()
    assert had(world) == [f"e{number}" for number in range(700)]


def test_a_job_with_many_events_does_not_starve_the_others(world: SteppedWorker) -> None:
    write(world, *["e"] * (EVENTS_PER_REQUEST * (REQUESTS_IN_A_ROW + 2)))
    world.pump.step()
    assert len(had(world)) == EVENTS_PER_REQUEST * REQUESTS_IN_A_ROW
    world.pump.step()
    assert len(had(world)) == EVENTS_PER_REQUEST * (REQUESTS_IN_A_ROW + 2)


def test_a_line_that_is_not_an_event_becomes_a_warning_in_the_result(world: SteppedWorker) -> None:
    write(world, "a", text="nonsense\n")
    world.pump.step()
    write(world, "c", text="more nonsense")
    end(world)
    world.deliver()
    assert had(world) == ["a", None, "c", None]
    (result,) = world.coordinator.results
    assert result.warnings == [
        "$DEBORGEN_EVENTS: 2 lines were left out: line 2 is not JSON: Expecting value: line 1 column 1 (char 0)"
    ]


def test_a_job_that_is_given_back_delivers_its_events_first(world: SteppedWorker) -> None:
    write(world, "a")
    world.agent.stop_all(StopCause.RELEASE, "the worker is stopping")
    world.deliver()
    assert (world.outcomes, had(world)) == ({NAME: "released"}, ["a"])


def refuse(world: SteppedWorker, status: int, code: str, when: Callable[[list[ProgramEvent | None]], bool]) -> None:
    """Let the coordinator refuse events that meet this condition."""
    real = world.coordinator.events

    def events(attempt: str, first: int, events: list[ProgramEvent | None], session: str) -> int:
        if when(events):
            world.coordinator.calls.append(("events", (attempt, first, events)))
            raise Refused(status, code, "no")
        return real(attempt, first, events, session)

    world.coordinator.events = events  # type: ignore[method-assign]


@pytest.mark.parametrize(("status", "code"), [(400, Code.MALFORMED), (413, Code.TOO_LARGE)])
def test_an_event_that_is_refused_is_left_out_and_the_others_are_delivered(
    world: SteppedWorker, status: int, code: str
) -> None:
    refuse(world, status, code, lambda events: any(each is not None and each.type == "bad" for each in events))
    write(world, *["fine"] * 20, "bad", *["fine"] * 20)
    end(world)
    world.deliver()
    assert had(world) == [*["fine"] * 20, None, *["fine"] * 20]
    assert world.outcomes == {NAME: "succeeded"}


def test_a_request_that_is_too_large_is_sent_in_parts(world: SteppedWorker) -> None:
    refuse(world, 413, Code.TOO_LARGE, lambda events: len(events) > 3)
    write(world, *[f"e{number}" for number in range(20)])
    end(world)
    world.deliver()
    assert had(world) == [f"e{number}" for number in range(20)]


@pytest.mark.parametrize(("status", "code"), [(404, Code.NOT_FOUND), (405, Code.METHOD_NOT_ALLOWED), (400, "odd")])
def test_events_that_can_never_be_delivered_do_not_hold_up_the_result(
    world: SteppedWorker, status: int, code: str
) -> None:
    """An example is a coordinator of an older release, which does not know events."""
    refuse(world, status, code, lambda events: True)
    write(world, "a")
    world.pump.step()
    world.pump.step()
    end(world)
    world.outbox.step()
    assert world.outcomes == {NAME: "succeeded"}
    assert [line for line in world.said if "giving them up" in line] == [
        f"the coordinator refused the events of {NAME}, giving them up: no"
    ]


def test_a_heartbeat_asks_about_the_events_of_a_stale_attempt_and_its_result_is_sent_anyway(
    world: SteppedWorker,
) -> None:
    """This happens if a result was accepted, the answer was lost, and the worker restarted."""
    refuse(world, 409, Code.STALE_ATTEMPT, lambda events: True)
    world.coordinator.answers[NAME] = "already_recorded"
    write(world, "a")
    end(world)
    for _ in range(3):
        world.deliver()
    assert world.outcomes == {NAME: "succeeded"}
    assert world.spool.entries == {}
    assert [message for name, message in world.coordinator.calls if name == "heartbeat"][-1].holding[0].attempt == NAME


def test_events_of_an_attempt_that_may_be_resumed_wait_for_the_answer(world: SteppedWorker) -> None:
    """Seen to fail when an attempt counts as stale although the heartbeat about it was not answered."""
    answered: list[HeartbeatAnswer] = []
    real = world.coordinator.heartbeat

    def heartbeat(message: Heartbeat) -> HeartbeatAnswer:
        answered.append(real(message))
        return answered[-1]

    world.coordinator.heartbeat = heartbeat  # type: ignore[method-assign]
    refuse(world, 409, Code.STALE_ATTEMPT, lambda events: not answered)
    world.coordinator.away = {"heartbeat"}
    write(world, "a")
    end(world)
    for _ in range(5):
        world.deliver()
    assert (world.outcomes, had(world)) == ({}, [])
    world.coordinator.away = set()
    for _ in range(2):
        world.deliver()
    assert (world.outcomes, had(world)) == ({NAME: "succeeded"}, ["a"])


def test_a_heartbeat_asks_about_a_running_attempt_whose_events_are_stale(world: SteppedWorker) -> None:
    refuse(world, 409, Code.STALE_ATTEMPT, lambda events: True)
    world.coordinator.words[NAME] = "stop"
    write(world, "a")
    world.pump.step()
    assert ("KILL", NAME) in world.runner.calls


def test_events_are_kept_while_the_token_is_refused(world: SteppedWorker) -> None:
    refuse(world, 401, Code.UNAUTHENTICATED, lambda events: not world.coordinator.words)
    write(world, "a")
    end(world)
    world.deliver()
    assert (world.outcomes, had(world)) == ({}, [])
    world.coordinator.words["any"] = "continue"
    world.now += 20.0
    world.deliver()
    assert (world.outcomes, had(world)) == ({NAME: "succeeded"}, ["a"])
