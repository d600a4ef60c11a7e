"""What a heartbeat reports about the worker and its machine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from deborgen_shared.messages import Heartbeat, Metrics
from deborgen_worker.attempts import Exit
from support.worker_in_steps import SteppedWorker, running


@pytest.fixture
def world(tmp_path: Path) -> SteppedWorker:
    return SteppedWorker(tmp_path, running)


def last_heartbeat(world: SteppedWorker) -> Heartbeat:
    name, message = world.coordinator.calls[-1]
    assert name == "heartbeat"
    assert isinstance(message, Heartbeat)
    return message


def test_a_heartbeat_carries_metrics_but_one_about_a_single_attempt_does_not(world: SteppedWorker) -> None:
    """Seen to fail when every heartbeat measures the machine."""
    measured: list[Metrics] = []

    def measure() -> Metrics:
        measured.append(Metrics(load=0.5))
        return measured[-1]

    world.measure = measure  # type: ignore[method-assign]
    world.heartbeats.step()
    assert last_heartbeat(world).metrics == Metrics(load=0.5)
    world.queue("1.1/1")
    world.take()
    world.heartbeats.ask_about("1.1/1")
    assert last_heartbeat(world).metrics is None
    assert len(measured) == 1


def test_metrics_that_the_coordinator_refuses_never_cost_a_lease(world: SteppedWorker) -> None:
    """Seen to fail when the second try carries them again."""
    world.queue("1.1/1")
    world.take()
    world.measure = lambda: Metrics(load=0.5)  # type: ignore[method-assign]
    world.coordinator.refuse_if = lambda message: message.metrics is not None
    world.heartbeats.step()
    taken = last_heartbeat(world)
    assert (taken.metrics, [each.attempt for each in taken.holding]) == (None, ["1.1/1"])


def test_a_coordinator_of_release_0_1_gets_a_state_that_it_knows(world: SteppedWorker) -> None:
    """Seen to fail when the second try has the same state: then every lease would expire."""
    world.queue("1.1/1")
    world.take()
    world.machine.gate.close("disk", "only 200MiB of disk are free")
    world.coordinator.refuse_if = lambda message: message.state not in ("open", "paused", "draining")
    world.heartbeats.step()
    taken = last_heartbeat(world)
    assert (taken.state, taken.reason) == ("paused", "only 200MiB of disk are free")
    assert [each.attempt for each in taken.holding] == ["1.1/1"]


def test_every_heartbeat_carries_the_end_of_a_timed_pause(world: SteppedWorker) -> None:
    """Seen to fail when a heartbeat about one attempt forgets the end."""
    world.now = 1_800_000_000.0
    world.owner.pause(7200.0, now=False)
    ends = datetime(2027, 1, 15, 10, 0, tzinfo=UTC)
    world.heartbeats.step()
    assert (last_heartbeat(world).state, last_heartbeat(world).until) == ("paused", ends)
    world.heartbeats.ask_about("1.1/1")
    assert (last_heartbeat(world).state, last_heartbeat(world).until) == ("paused", ends)
    world.owner.pause(None, now=False)
    world.heartbeats.step()
    assert (last_heartbeat(world).state, last_heartbeat(world).until) == ("paused", None)
    world.owner.resume()
    world.heartbeats.step()
    assert (last_heartbeat(world).state, last_heartbeat(world).until) == ("open", None)


def test_time_in_which_a_job_is_frozen_is_reported_as_stopped(world: SteppedWorker) -> None:
    """Each heartbeat and the result carry it. Seen to fail when only the time since the start is reported."""
    world.queue("1.1/1")
    world.take()
    world.now += 10
    world.owner.pause(None, now=True)
    world.now += 30
    world.heartbeats.step()
    [held] = last_heartbeat(world).holding
    assert (held.began_seconds_ago, held.stopped_seconds, held.standing) == (40.0, 30.0, "frozen")
    world.owner.resume()
    world.now += 5
    world.heartbeats.step()
    [held] = last_heartbeat(world).holding
    assert (held.began_seconds_ago, held.stopped_seconds, held.standing) == (45.0, 30.0, "running")
    world.runner.end("1.1/1", Exit(code=0))
    world.deliver()
    [result] = world.coordinator.results
    assert (result.seconds, result.stopped_seconds) == (15.0, 30.0)


def test_nothing_is_free_while_every_slot_is_taken(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running, slots=1)
    world.heartbeats.step()
    free = last_heartbeat(world).free
    assert free is not None
    assert free.cpus == 2
    world.queue("1.1/1")
    world.take()
    world.heartbeats.step()
    free = last_heartbeat(world).free
    assert free is not None
    assert (free.cpus, free.memory, free.disk) == (0, 0, 0)
