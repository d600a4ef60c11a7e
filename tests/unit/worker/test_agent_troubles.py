"""Problems around an attempt: while it is prepared and started, at its end, across a restart, on a full disk."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from deborgen_shared.client.transport import Refused
from deborgen_shared.messages import Finish, Finished
from deborgen_worker.attempts import Exit, StopCause
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.runners.podman.reading import moment
from deborgen_worker.runners.programs import NEVER, Program
from deborgen_worker.runners.protocol import CannotStart, Launch
from deborgen_worker.steps import Exited
from support.scripted_runner import Script
from support.worker_in_steps import SteppedWorker, running


@pytest.fixture
def world(tmp_path: Path) -> SteppedWorker:
    return SteppedWorker(tmp_path)


@pytest.mark.parametrize("kind", [{}, {"image": "x"}])
def test_a_bug_at_a_start_ends_the_attempt_and_is_reported(tmp_path: Path, kind: dict[str, str]) -> None:
    def faulty(_launch: Launch) -> Script:
        raise ZeroDivisionError("a bug")

    world = SteppedWorker(tmp_path, faulty)
    world.queue("1.1/1", **kind)
    world.take()
    world.deliver()
    [result] = world.coordinator.results
    assert (result.outcome, result.reason) == ("error", "a bug")
    assert any("ZeroDivisionError" in line for line in world.said)
    assert ("discard", "1.1/1") in world.runner.calls
    assert world.machine.attempts == {}


def test_a_bug_while_collecting_ends_the_attempt(world: SteppedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("deborgen_worker.execution._collect", faulty)
    world.queue("1.1/1")
    world.take()
    world.deliver()
    [result] = world.coordinator.results
    assert (result.outcome, result.reason) == ("error", "its output could not be collected: a bug")


def test_an_attempt_that_never_began_has_a_run_time_of_zero(world: SteppedWorker) -> None:
    """Seen to fail when 0 counts as its start: then it would have run since the machine was booted."""
    world.queue("1.1/1")
    world.hold()
    world.stop("1.1/1", StopCause.RELEASE, "not now")
    world.deliver()
    [result] = world.coordinator.results
    assert (result.outcome, result.seconds) == ("released", 0.0)


def test_a_jobs_progress_text_never_costs_another_job_its_lease(world: SteppedWorker, tmp_path: Path) -> None:
    world.runner.script = running
    world.queue("1.1/1", "1.2/1")
    world.take()
    progress = world.spool.folder("1.1/1") / "work" / ".deborgen" / "progress"
    progress.write_bytes(b"\0\0\0\0" + b"0.6 of it")
    world.pump.step()
    world.heartbeats.step()
    sent = world.coordinator.calls[-1][1]
    assert [(each.progress, each.message) for each in sent.holding] == [(0.6, "of it"), (None, "")]

    world.coordinator.refuse_if = lambda message: any(each.progress for each in message.holding)
    world.heartbeats.step()
    assert [each.progress for each in world.coordinator.calls[-1][1].holding] == [None, None]
    assert any("refused a heartbeat" in line for line in world.said)


def test_a_result_that_cannot_be_written_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1", "1.2/1")
    world.take()
    (world.spool.folder("1.1/1") / "work" / ".deborgen" / "result.json").write_text("{}")
    monkeypatch.setattr("deborgen_worker.workspace.parse_result", lambda _data: ({"name": "caf\udce9"}, []))
    world.agent.apply_runner_events([Exited(name, Exit(code=0, seconds=1.0)) for name in ("1.1/1", "1.2/1")])
    world.deliver()
    assert world.outcomes == {"1.1/1": "error", "1.2/1": "succeeded"}
    assert any("cannot be written to the spool" in line for line in world.said)


@pytest.mark.parametrize("when", ["before the thread begins", "while the image is pulled"])
def test_an_attempt_that_is_canceled_during_its_preparation_ends_at_once_and_never_starts(
    tmp_path: Path, when: str
) -> None:
    world = SteppedWorker(tmp_path)
    slow = world.slow = []

    def cancel() -> None:
        world.stop("1.1/1", StopCause.CANCEL, "canceled")
        world.deliver()
        assert world.outcomes == {"1.1/1": "canceled"}
        assert world.machine.ledger.free() == world.machine.ledger.offered

    world.queue("1.1/1", image="x")
    world.take()
    if when == "before the thread begins":
        cancel()
    else:
        world.runner.prepare = lambda launch: cancel()  # type: ignore[method-assign]
    while slow:
        slow.pop(0)()
    assert ("start", "1.1/1") not in world.runner.calls
    assert when.startswith("before") or world.runner.calls[-1] == ("discard", "1.1/1")
    assert not world.spool.folder("1.1/1").exists()
    assert [result.seconds for result in world.coordinator.results] == [0.0]


def test_the_time_of_a_job_does_not_run_while_its_image_is_pulled(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)

    def pull(launch: Launch) -> None:
        world.now += 1000.0
        world.agent.tick()
        world.heartbeats.step()

    world.runner.prepare = pull  # type: ignore[method-assign]
    world.queue("1.1/1", image="x")
    world.take()
    world.now += 59.0
    world.agent.tick()
    assert world.stage("1.1/1").stop is None
    world.now += 2.0
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.1/1": "timeout"}


def test_an_attempt_that_an_earlier_session_was_canceling_before_its_start_is_canceled(tmp_path: Path) -> None:
    """Seen to fail when an attempt that is already being ended is never ended again, whatever its stage."""
    world = SteppedWorker(tmp_path)
    world.queue("1.1/1")
    world.hold()
    world.spool.started({"1.1/1": ()}, "subprocess", world.now, world.now)
    world.spool.stopped("1.1/1", "canceled", "canceled")
    world.wake("boot")
    world.coordinator.words = {"1.1/1": "cancel"}
    world.heartbeats.step()
    world.deliver()
    assert world.outcomes == {"1.1/1": "canceled"}


def test_the_end_of_a_job_whose_log_is_being_sent_holds_nothing_up(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    slow = world.slow = []
    world.queue("1.1/1")
    world.take()
    execution = world.agent.execution("1.1/1")
    assert execution is not None
    with execution.log_lock:  # like `LogPump` while it sends
        world.runner.end("1.1/1", Exit(code=0, seconds=1.0))
    assert len(slow) == 1
    slow.pop()()
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}


def test_an_attempt_that_is_given_back_during_its_preparation_leaves_nothing_behind(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    slow = world.slow = []
    world.queue("1.1/1", resources={"cpus": 2})
    world.take()
    world.let_short_jobs_end()
    world.queue("1.2/1", image="x")
    world.take()
    assert [len(slow), world.stage("1.2/1").touched] == [1, True]

    def give_back(launch: Launch) -> None:
        world.stop("1.2/1", StopCause.RELEASE, "not now")
        world.deliver()

    world.runner.prepare = give_back  # type: ignore[method-assign]
    while slow:
        slow.pop(0)()
    assert world.outcomes == {"1.2/1": "released"}
    assert world.runner.calls[-1] == ("discard", "1.2/1")
    assert not world.spool.folder("1.2/1").exists()


def test_the_gpu_of_a_job_that_survives_a_restart_is_given_to_no_other(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.gpus = ("gpu=0", "gpu=1")
    world.wake("boot")
    world.queue("1.1/1", resources={"gpus": 1})
    world.take()
    assert world.machine.attempts["1.1/1"].gpus == ("gpu=0",)
    world.wake("boot")
    world.wake("boot")  # the journal was rewritten meanwhile
    world.heartbeats.step()
    world.queue("1.2/1", resources={"gpus": 1})
    world.take()
    assert {name: each.gpus for name, each in world.machine.attempts.items()} == {
        "1.1/1": ("gpu=0",),
        "1.2/1": ("gpu=1",),
    }
    world.runner.end("1.1/1", Exit(code=0, seconds=1.0))
    world.deliver()
    world.queue("1.3/1", resources={"gpus": 1})
    world.take()
    assert world.machine.attempts["1.3/1"].gpus == ("gpu=0",)


def test_settled_attempts_are_removed_even_on_a_full_disk(
    world: SteppedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their folders may be what fills the disk."""
    world.queue("1.1/1")
    world.take()
    folder = world.spool.folder("1.1/1")
    assert folder.exists()

    def full(*_: object) -> int:
        raise SpoolFullError("no space left")

    monkeypatch.setattr(world.spool._journal, "append", full)
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}
    assert not folder.exists()
    assert world.spool.entries == {}


def test_a_result_is_delivered_although_its_job_could_not_run_here_any_more(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path)
    world.queue("1.1/1", image="x")
    world.take()
    world.podman = False
    world.wake("boot")
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}
    assert world.spool.unsent() == []


def test_leftovers_that_a_runner_could_not_remove_are_removed_later(world: SteppedWorker) -> None:
    def refuses(attempt: str) -> None:
        raise CannotStart("not now")

    world.queue("1.1/1")
    world.take()
    discard, world.runner.discard = world.runner.discard, refuses  # type: ignore[method-assign]
    world.deliver()
    world.agent.retry_cleanup()
    assert ("discard", "1.1/1") not in world.runner.calls
    world.runner.discard = discard  # type: ignore[method-assign]
    for _ in range(2):
        world.agent.retry_cleanup()
        assert world.runner.calls.count(("discard", "1.1/1")) == 1


def test_a_container_made_for_other_gpus_is_removed_before_the_next_start_and_none_after_it(tmp_path: Path) -> None:
    """Seen to fail when the removal is left for later: it then removes the container that is running by that time."""
    world = SteppedWorker(tmp_path, running)
    world.gpus = ("gpu=0",)
    world.wake("boot")
    prepare, discard = world.runner.prepare, world.runner.discard

    def pull(_launch: Launch) -> None:
        world.now += 100.0

    def refuses(_attempt: str) -> None:
        raise CannotStart("not now")

    world.runner.prepare, world.runner.discard = pull, refuses  # type: ignore[assignment,method-assign]
    world.queue("1.1/1", image="x", resources={"gpus": 1})
    world.take()
    world.runner.prepare, world.runner.discard = prepare, discard  # type: ignore[method-assign]
    world.heartbeats.step()
    world.agent.retry_cleanup()
    assert list(world.runner.running) == ["1.1/1"]
    calls = [what for what, name in world.runner.calls if name == "1.1/1"]
    assert calls.index("discard") < calls.index("start")
    assert calls.count("discard") == 1


def test_time_in_which_a_job_was_frozen_does_not_count_as_its_run_time(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.stage("1.1/1").frozen_seconds = 30.0
    world.runner.end("1.1/1", Exit(code=0, seconds=40.0))
    world.deliver()
    assert world.coordinator.results[0].seconds == 10.0


def test_a_program_frozen_before_a_restart_is_woken_when_the_pause_is_over(tmp_path: Path) -> None:
    """A pause may end while no worker is running. Seen to fail when an adopted program is taken for awake."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.owner.pause(60, now=True)
    assert world.runner.frozen == {"1.1/1"}
    world.now += 100
    world.runner.stopped = 100.0
    world.wake("boot")
    world.owner.apply()
    world.agent.tick()
    assert world.runner.frozen == set()
    world.now += 30
    world.runner.end("1.1/1", Exit(code=0))
    world.deliver()
    assert world.coordinator.results[0].seconds == 30.0


def test_waking_a_program_is_retried_if_it_fails(tmp_path: Path) -> None:
    """Seen to fail when the program is taken for awake: it stays frozen, and its time runs out."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.owner.pause(None, now=True)
    thaw = world.runner.thaw

    def refuses(attempt: str) -> None:
        raise CannotStart("not now")

    world.runner.thaw = refuses  # type: ignore[method-assign]
    world.owner.resume()
    world.now += 100
    world.agent.tick()
    assert world.runner.frozen == {"1.1/1"}
    world.runner.thaw = thaw  # type: ignore[method-assign]
    world.agent.tick()
    assert world.runner.frozen == set()
    assert world.stage("1.1/1").stop is None, "its time did not run"


def test_the_end_of_a_job_does_not_deadlock_with_a_thread_that_sends_its_log(tmp_path: Path) -> None:
    """Seen to fail when `is_running` takes the agent's lock: both threads wait for each other, and leases expire."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    execution = world.agent.execution("1.1/1")
    assert execution is not None
    held, asked = threading.Event(), threading.Event()

    def pump() -> None:
        with execution.log_lock:
            held.set()
            asked.wait(10)
            world.agent.is_running("1.1/1")

    def look(_machine: object, _executions: object) -> None:
        asked.set()
        thread.join(10)
        assert not thread.is_alive()

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    held.wait(10)
    world.agent.read_state(look)


def test_a_frozen_program_does_not_reach_its_time_limit() -> None:
    program = Program({"timeout": 5.0})
    program.note(signal.SIGSTOP)
    program.note(signal.SIGSTOP)
    assert program.until == NEVER
    program.note(signal.SIGCONT)
    assert 4.0 < program.until - time.monotonic() <= 5.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-16T12:59:57.198805008Z", 1794833997.198805),
        ("2026-11-16T13:59:57.198805008+01:00", 1794833997.198805),
        ("0001-01-01T00:00:00Z", 0.0),
        ("", 0.0),
        (None, 0.0),
        ("soon", 0.0),
    ],
)
def test_podmans_times_are_understood_in_any_time_zone(text: str | None, seconds: float) -> None:
    assert moment(text) == pytest.approx(seconds, abs=1e-5)


def test_a_result_of_another_worker_does_not_hold_up_the_others(
    world: SteppedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens after a backup was restored, or under a new name."""
    finish = world.coordinator.finish

    def forbids(message: Finish) -> Finished:
        if any(result.attempt == "1.1/1" for result in message.results):
            raise Refused(403, "forbidden", "attempt 1.1/1 is not this worker's")
        return finish(message)

    monkeypatch.setattr(world.coordinator, "finish", forbids)
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.deliver()
    assert world.outcomes == {"1.2/1": "succeeded"}
    assert world.spool.unsent() == ["1.1/1"]


def test_a_containers_run_time_is_the_time_for_which_it_has_its_room(tmp_path: Path) -> None:
    """Its program may run for milliseconds. Seen to fail when only those count: far too many jobs are prefetched."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1", image="x")
    world.take()
    world.now += 3.0
    world.runner.end("1.1/1", Exit(code=0, seconds=0.02))
    assert world.machine.ledger.average == 3.0
    assert world.machine.ledger.prefetch_limit(world.now) == 0


def test_a_pause_that_is_applied_by_two_threads_at_once_freezes_a_job_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's command and the worker's clock both apply it. A container that is frozen cannot be frozen again."""
    world = SteppedWorker(tmp_path, running, keep_frozen=1000.0)
    world.queue("1.1/1")
    world.take()
    frozen: list[str] = []
    clock = threading.Thread(target=world.owner.apply)

    def freeze(attempt: str) -> None:
        if frozen:
            raise CannotStart("it is paused already")
        frozen.append(attempt)
        clock.start()
        clock.join(1.0)  # it should wait for this thread; otherwise it would have finished by now

    monkeypatch.setattr(world.runner, "freeze", freeze)
    world.owner.pause(None, now=True)
    clock.join()
    assert frozen == ["1.1/1"]
    assert world.stage("1.1/1").stop is None, "it is frozen, not given back"
