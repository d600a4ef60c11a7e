"""Very short jobs that follow each other in their runner, as the agent sees them."""

from __future__ import annotations

from pathlib import Path

from deborgen_worker.attempts import Exit
from deborgen_worker.lifecycle import FOLLOW_WAIT_SECONDS
from deborgen_worker.owner import WORDS
from deborgen_worker.runners.protocol import CannotStart, Launch
from support.worker_in_steps import SteppedWorker, running

SHORT = Exit(code=0, seconds=0.001)


def busy(tmp_path: Path) -> SteppedWorker:
    """Two programs run, and jobs are so short that others may wait for their room with the runner."""
    world = SteppedWorker(tmp_path, running)
    world.let_short_jobs_end()
    world.queue(*[f"1.{number}/1" for number in range(1, 9)])
    for _ in range(4):
        world.take()
    assert sorted(world.runner.running) == ["1.1/1", "1.2/1"]
    return world


def stages(world: SteppedWorker) -> dict[str, str]:
    return {name: WORDS[type(each.stage)] for name, each in sorted(world.machine.attempts.items())}


def test_short_jobs_wait_with_the_runner_which_starts_them_by_itself(tmp_path: Path) -> None:
    world = busy(tmp_path)
    assert [name for what, name in world.runner.calls if what == "follow"] == [f"1.{n}/1" for n in range(3, 9)]
    world.runner.end("1.1/1", SHORT)
    assert sorted(world.runner.running) == ["1.2/1", "1.3/1"]
    assert stages(world)["1.3/1"] == "running"
    assert stages(world)["1.4/1"] == "next"
    assert sorted(world.machine.ledger.running) == ["1.2/1", "1.3/1"]
    for number in (3, 2, 4, 5, 6, 7, 8):
        world.runner.end(f"1.{number}/1", SHORT)
        assert len(world.machine.ledger.running) <= 2
    world.deliver()
    assert world.outcomes == {f"1.{n}/1": "succeeded" for n in range(1, 9)}
    assert world.machine.ledger.free() == world.machine.ledger.offered


def test_an_attempt_that_waits_with_the_runner_is_canceled_without_starting(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.coordinator.words = {"1.3/1": "cancel"}
    world.heartbeats.step()
    world.runner.end("1.1/1", SHORT)
    assert sorted(world.runner.running) == ["1.2/1", "1.4/1"]
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded", "1.3/1": "canceled"}
    assert ("start", "1.3/1") not in world.runner.calls


def test_a_pause_recalls_and_gives_back_attempts_that_wait_with_the_runner(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.owner.pause(3600, now=False)
    world.runner.end("1.1/1", SHORT)
    assert sorted(world.runner.running) == ["1.2/1"]
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"} | {f"1.{n}/1": "released" for n in range(3, 9)}


def test_attempts_behind_a_program_that_turns_out_long_are_recalled_and_start_elsewhere(tmp_path: Path) -> None:
    world = busy(tmp_path)
    waiting = [name for name, stage in stages(world).items() if stage == "next"]
    world.now += FOLLOW_WAIT_SECONDS + 0.1
    world.agent.tick()
    assert {name for what, name in world.runner.calls if what == "recall"} == set(waiting)
    assert all(stages(world)[name] == "waiting" for name in waiting)
    world.runner.end("1.2/1", Exit(code=0, seconds=1.0))
    assert len(world.runner.running) == 2
    assert "1.1/1" in world.runner.running


def test_an_attempt_that_a_runner_gives_back_is_not_handed_to_it_again(tmp_path: Path) -> None:
    """Seen to fail when it is: worker and runner would pass it back and forth forever."""
    world = SteppedWorker(tmp_path, running)
    world.let_short_jobs_end()
    world.runner.follows = False
    world.queue(*[f"1.{number}/1" for number in range(1, 5)])
    for _ in range(4):
        world.take()
    assert stages(world) == {"1.1/1": "running", "1.2/1": "running", "1.3/1": "waiting", "1.4/1": "waiting"}
    world.runner.end("1.1/1", SHORT)
    assert "1.3/1" in world.runner.running or "1.4/1" in world.runner.running


def test_a_restarted_worker_counts_attempts_that_wait_with_the_runner_as_running(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.runner.tell = lambda _events: None  # the worker is dead
    world.runner.end("1.1/1", SHORT)
    held = world.wake("boot")
    assert "1.5/1" in held
    for name in list(world.runner.ended):
        assert name in held
    while world.runner.running:
        world.runner.end(next(iter(world.runner.running)), SHORT)
    world.deliver()
    assert world.outcomes == {f"1.{n}/1": "succeeded" for n in range(1, 9)}
    started = [name for what, name in world.runner.calls if what == "start"]
    assert len(started) == len(set(started)) == 8


def test_an_attempt_that_cannot_wait_with_the_runner_does_not_affect_other_starts(tmp_path: Path) -> None:
    """Seen to fail in seed 4443: an attempt that had just been started was reported as an error."""
    world = SteppedWorker(tmp_path, running)
    world.let_short_jobs_end()

    def refuses(launches: list[Launch]) -> None:
        raise CannotStart("not now")

    world.runner.follow = refuses  # type: ignore[method-assign]
    world.queue(*[f"1.{number}/1" for number in range(1, 5)])
    world.take()
    world.deliver()
    assert world.outcomes == {"1.3/1": "error", "1.4/1": "error"}
    assert stages(world) == {"1.1/1": "running", "1.2/1": "running"}
