"""The watchdog: a program that writes nothing for too long has failed. Only time in which it could run counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from deborgen_worker.folders import EVENTS, OUTPUT, OWN, PROGRESS, WORK
from deborgen_worker.observer import Observer
from support.worker_in_steps import SteppedWorker, running


@pytest.fixture
def world(tmp_path: Path) -> SteppedWorker:
    """A worker with one running job whose watchdog waits for 20 seconds."""
    world = SteppedWorker(tmp_path, running, keep_frozen=1000.0)
    world.queue("1.1/1", watchdog=20.0)
    world.take()
    Observer(world.agent).step()
    return world


def look_after(world: SteppedWorker, seconds: float) -> bool:
    """Let time pass, look at the job, and return whether it was ended."""
    world.now += seconds
    Observer(world.agent).step()
    return ("TERM", "1.1/1") in world.runner.calls


def test_a_program_that_writes_nothing_is_ended_as_stalled(world: SteppedWorker) -> None:
    assert not look_after(world, 19.0)
    assert look_after(world, 2.0)
    world.deliver()
    assert world.outcomes == {"1.1/1": "stalled"}
    assert world.coordinator.results[0].reason == "it wrote neither output nor progress for 20 s"


@pytest.mark.parametrize("file", [OUTPUT, f"{WORK}/{OWN}/{PROGRESS}", f"{WORK}/{OWN}/{EVENTS}"])
def test_output_progress_and_events_each_count_as_a_sign_of_life(world: SteppedWorker, file: str) -> None:
    folder = world.spool.folder("1.1/1")
    for _ in range(3):
        with (folder / file).open("ab") as written:
            written.write(b"0.5\n")
        assert not look_after(world, 15.0)
    assert look_after(world, 21.0)


def test_time_in_which_the_owner_has_it_frozen_does_not_count(world: SteppedWorker) -> None:
    world.owner.pause(None, now=True)
    assert not look_after(world, 500.0)
    world.owner.resume()
    assert not look_after(world, 19.0)
    assert look_after(world, 2.0)


def test_a_program_is_not_blamed_for_a_time_in_which_nobody_looked(world: SteppedWorker) -> None:
    (world.spool.folder("1.1/1") / OUTPUT).write_bytes(b"still here\n")
    assert not look_after(world, 500.0)


def test_a_restarted_worker_begins_to_count_again(world: SteppedWorker) -> None:
    world.now += 30.0
    world.wake("boot")
    assert not look_after(world, 0.0)
    assert look_after(world, 21.0)


def test_a_job_without_a_watchdog_may_be_silent(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    assert not look_after(world, 0.0)
    assert not look_after(world, 50.0)
