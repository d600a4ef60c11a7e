"""The real claimer, heartbeats, outbox, agent and spool in one thread, with a pretended coordinator and runner.

Nothing here waits: time is a number that the test moves.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from deborgen_shared.client.transport import Refused
from deborgen_shared.messages import (
    Claim,
    Claimed,
    Finish,
    Finished,
    MissingBlob,
)
from deborgen_worker.attempts import Exit, StopCause
from deborgen_worker.claims import IDLE_WAIT_SECONDS, PART_WAIT_SECONDS
from deborgen_worker.coordinator import NothingClaimed
from deborgen_worker.heartbeat import Superseded
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.runners.protocol import CannotStart, Launch
from support.scripted_runner import Script
from support.worker_in_steps import SteppedWorker, running


@pytest.fixture
def world(tmp_path: Path) -> SteppedWorker:
    return SteppedWorker(tmp_path)


def test_a_job_starts_as_soon_as_its_claim_is_answered_and_is_reported_once(world: SteppedWorker) -> None:
    world.queue("1.1/1")
    world.claimer.step()
    assert ("start", "1.1/1") in world.runner.calls
    assert [name for name, _ in world.coordinator.calls] == ["claim"]
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}
    assert world.spool.entries == {}
    assert not world.spool.folder("1.1/1").exists()


def test_fault_06_a_claim_whose_answer_was_lost_is_resent_unchanged(world: SteppedWorker) -> None:
    """Seen to fail when a claim whose answer was lost is forgotten."""
    world.queue("1.1/1", "1.2/1", "1.3/1", "1.4/1")
    world.coordinator.lose_answer_of = "claim"
    world.take()
    world.take()
    asked = [message.request_id for name, message in world.coordinator.calls if name == "claim"]
    assert len(asked) == 2
    assert len(set(asked)) == 1
    assert [name for what, name in world.runner.calls if what == "start"] == ["1.1/1", "1.2/1"]


def test_fault_09_a_first_heartbeat_without_an_answer_starts_no_second_program(tmp_path: Path) -> None:
    """It is named again, not started again. Seen to fail when every renewed lease starts the program again."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.coordinator.away = {"heartbeat"}
    world.take()
    world.now += 1
    world.heartbeats.step()
    assert world.agent.has_unreported_program(0.5)
    world.coordinator.away = set()
    world.heartbeats.step()
    assert not world.agent.has_unreported_program(0.5)
    world.heartbeats.step()
    assert world.runner.calls.count(("start", "1.1/1")) == 1


def test_a_heartbeat_says_how_long_ago_each_program_began(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    assert not world.agent.has_unreported_program(0.5)
    world.now += 2.5
    assert world.agent.has_unreported_program(0.5)
    world.heartbeats.step()
    [held] = [message.holding[0] for name, message in world.coordinator.calls if name == "heartbeat"]
    assert (held.attempt, held.began_seconds_ago) == ("1.1/1", 2.5)


def test_a_result_says_how_long_ago_its_program_began_however_late_it_is_sent(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.now += 5
    world.coordinator.away = {"finish"}
    world.runner.end("1.1/1", Exit(code=0, seconds=5.0))
    world.deliver()
    world.now += 100
    world.coordinator.away = set()
    world.deliver()
    [result] = world.coordinator.results
    assert (result.seconds, result.began_seconds_ago) == (5.0, 107.0)


def test_after_a_reboot_a_result_does_not_say_when_its_program_began(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.runner.end("1.1/1", Exit(code=0, seconds=5.0))
    world.spool.commit()
    world.now = 3.0
    world.wake("another boot")
    world.deliver()
    [result] = world.coordinator.results
    assert (result.outcome, result.began_seconds_ago) == ("succeeded", None)


def test_a_finish_brings_the_next_job_and_it_starts(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.coordinator.gives_with_finish = True
    world.queue("1.1/1", "1.2/1", "1.3/1")
    world.take()
    world.runner.end("1.1/1", Exit(code=0, seconds=5.0))
    world.deliver()
    assert ("start", "1.3/1") in world.runner.calls
    assert [name for name, _ in world.coordinator.calls] == ["claim", "finish"]


def test_a_finish_whose_answer_was_lost_is_repeated_with_the_same_claim(tmp_path: Path) -> None:
    """Seen to fail when the claim is forgotten: its job then waits until the lease expires."""
    world = SteppedWorker(tmp_path, running)
    world.coordinator.gives_with_finish = True
    world.queue("1.1/1", "1.2/1", "1.3/1", "1.4/1")
    world.take()
    world.runner.end("1.1/1", Exit(code=0, seconds=5.0))
    world.coordinator.lose_answer_of = "finish"
    world.deliver()
    assert ("start", "1.3/1") not in world.runner.calls
    world.deliver()
    asked = [message.claim.request_id for name, message in world.coordinator.calls if name == "finish"]
    assert len(asked) == 2
    assert len(set(asked)) == 1
    assert world.runner.calls.count(("start", "1.3/1")) == 1
    assert ("start", "1.4/1") not in world.runner.calls


def test_a_finish_that_gives_a_job_back_carries_no_claim(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.stop("1.1/1", StopCause.RELEASE, "no room")
    world.deliver()
    [finish] = [message for name, message in world.coordinator.calls if name == "finish"]
    assert finish.claim is None


def test_a_result_is_sent_until_it_is_acknowledged(world: SteppedWorker) -> None:
    world.queue("1.1/1")
    world.take()
    world.coordinator.away = {"finish"}
    for _ in range(5):
        world.deliver()
    assert world.spool.unsent() == ["1.1/1"]
    world.coordinator.away = set()
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}
    assert world.spool.unsent() == []


def test_a_worker_that_cannot_deliver_its_results_claims_no_more_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail without MAX_UNSENT_RESULTS: a worker had more results than it may name when it registers."""
    monkeypatch.setattr("deborgen_worker.claims.MAX_UNSENT_RESULTS", 4)
    world = SteppedWorker(tmp_path)
    world.coordinator.away = {"finish"}
    world.queue(*[f"1.{number}/1" for number in range(1, 30)])
    for _ in range(20):
        world.take()
        world.deliver()
    assert 4 <= len(world.spool.unsent()) < 4 + 8, "at most one claim's jobs beyond the limit"
    world.coordinator.away = set()
    for _ in range(60):
        world.take()
        world.deliver()
    assert len(world.outcomes) == 29


def test_a_cancel_sends_term_then_kill_after_the_grace_period(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, lambda _launch: Script(ignores_term=True), kill_grace=10.0)
    world.queue("1.1/1")
    world.take()
    world.coordinator.words = {"1.1/1": "cancel"}
    world.heartbeats.step()
    assert ("TERM", "1.1/1") in world.runner.calls
    world.now += 9
    world.agent.tick()
    assert ("KILL", "1.1/1") not in world.runner.calls
    world.now += 2
    world.agent.tick()
    world.deliver()
    assert ("KILL", "1.1/1") in world.runner.calls
    assert world.outcomes == {"1.1/1": "canceled"}


def test_a_stale_attempt_is_killed_and_nothing_is_reported(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.coordinator.words = {"1.1/1": "stop"}
    world.heartbeats.step()
    world.deliver()
    assert ("KILL", "1.1/1") in world.runner.calls
    assert world.outcomes == {}
    assert world.spool.entries == {}


def refuse_logs(world: SteppedWorker, times: int = 1) -> None:
    """Refuse logs as stale, as after an expired lease, until a heartbeat has resumed the attempt."""
    log, left = world.coordinator.log, [times]

    def picky(attempt: str, offset: int, data: bytes, session: str) -> int:
        if left[0]:
            left[0] -= 1
            raise Refused(409, "stale_attempt", f"attempt {attempt} is over")
        return log(attempt, offset, data, session)

    world.coordinator.log = picky  # type: ignore[method-assign]


@pytest.mark.parametrize("word", ["continue", "stop"])
def test_a_refused_log_ends_an_attempt_only_if_a_heartbeat_confirms_it(tmp_path: Path, word: str) -> None:
    """Seen to fail in seed 15146: a program was killed although no other worker had claimed its job."""
    world = SteppedWorker(tmp_path, lambda _launch: Script(output=b"hello\n"))
    world.queue("1.1/1")
    world.take()
    refuse_logs(world)
    world.coordinator.words = {"1.1/1": word}
    world.pump.step()
    assert [name for name, _ in world.coordinator.calls][-1] == "heartbeat", "asked at once"
    assert bool(world.runner.running) == (word == "continue")
    world.pump.step()
    assert world.coordinator.logs.get("1.1/1", b"") == (b"hello\n" if word == "continue" else b"")


@pytest.mark.parametrize(("refusals", "outcomes"), [(1, {"1.1/1": "succeeded"}), (2, {})])
def test_a_result_whose_log_is_refused_is_given_up_only_after_a_heartbeat_has_named_it(
    tmp_path: Path, refusals: int, outcomes: dict[str, str]
) -> None:
    world = SteppedWorker(tmp_path, lambda _launch: Script(exit=Exit(code=0, seconds=1.0), output=b"x" * (1 << 20)))
    refuse_logs(world, refusals)
    world.queue("1.1/1")
    world.take()
    for _ in range(4):
        world.deliver()
    asked = [message for name, message in world.coordinator.calls if name == "heartbeat"]
    assert [each.attempt for each in asked[-1].holding] == ["1.1/1"]
    assert world.outcomes == outcomes
    assert world.spool.unsent() == []


def test_a_timeout_is_the_programs_failure_and_frozen_time_does_not_count(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running, keep_frozen=1000.0)
    world.queue("1.1/1")
    world.take()
    world.now += 50
    world.owner.pause(None, now=True)
    world.now += 500
    world.owner.resume()
    world.agent.tick()
    assert ("TERM", "1.1/1") not in world.runner.calls
    world.now += 11
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.1/1": "timeout"}


def set_clock(world: SteppedWorker, hour: float) -> None:
    """Set the machine's clock to this hour of the local time of day."""
    world.now = datetime(2026, 1, 2).timestamp() + hour * 3600


def test_after_the_end_of_the_hours_a_job_may_finish_then_is_frozen_then_is_given_back(tmp_path: Path) -> None:
    """Seen to fail when the end of the hours only keeps new jobs out."""
    world = SteppedWorker(tmp_path, running, hours="22:00-07:00", finish=600.0, keep_frozen=900.0)
    set_clock(world, 6.9)
    world.owner.apply()
    world.queue("1.1/1")
    world.take()
    world.machine.attempts["1.1/1"].timeout = 1e6
    for hour, frozen in ((7.0, False), (7 + 599 / 3600, False), (7 + 600 / 3600, True), (7 + 1499 / 3600, True)):
        set_clock(world, hour)
        world.owner.apply()
        world.agent.tick()
        assert ("1.1/1" in world.runner.frozen) is frozen, hour
        assert world.machine.gate.reason == "its owner offers it only at 22:00-07:00"
    set_clock(world, 7 + 1501 / 3600)
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.1/1": "released"}


def test_a_job_that_is_frozen_outside_the_hours_wakes_when_they_begin_again(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running, hours="08:00-12:00", finish=60.0, keep_frozen=100_000.0)
    set_clock(world, 11.9)
    world.owner.apply()
    world.queue("1.1/1")
    world.take()
    world.machine.attempts["1.1/1"].timeout = 1e6
    set_clock(world, 13)
    world.owner.apply()
    assert world.runner.frozen == {"1.1/1"}
    set_clock(world, 24 + 8)
    world.owner.apply()
    assert world.runner.frozen == set()


def test_a_plain_pause_freezes_what_has_not_finished_in_time(tmp_path: Path) -> None:
    """Seen to fail when a plain pause lets jobs run for as long as they like."""
    world = SteppedWorker(tmp_path, running, finish=600.0)
    world.queue("1.1/1")
    world.take()
    world.machine.attempts["1.1/1"].timeout = 1e6
    assert "1 running job may finish within 10m, then it is frozen" in world.owner.pause(None, now=False)
    world.now += 599
    world.owner.apply()
    assert world.runner.frozen == set()
    world.now += 2
    world.owner.apply()
    assert world.runner.frozen == {"1.1/1"}
    world.owner.resume()
    assert world.runner.frozen == set()


@pytest.mark.parametrize(
    ("pause", "wanted", "seconds", "outcomes"),
    [
        (7200, False, 7000, {}),
        (7200, True, 10, {"1.1/1": "released"}),
        (600, True, 590, {}),
        (None, True, 890, {}),
        (None, True, 910, {"1.1/1": "released"}),
        (None, False, 100_000, {}),
        (None, None, 890, {}),
        (None, None, 910, {"1.1/1": "released"}),
    ],
)
def test_a_frozen_job_is_given_back_only_if_another_machine_wants_it(
    tmp_path: Path, pause: float | None, wanted: bool | None, seconds: float, outcomes: dict[str, str]
) -> None:
    """At once if the pause is known to be long, and otherwise after `keep_frozen`. None: an older coordinator, which
    does not say. Seen to fail when every job that was frozen for long is given back."""
    world = SteppedWorker(tmp_path, running, keep_frozen=900.0)
    world.coordinator.wanted = msgspec.UNSET if wanted is None else ["1.1/1"] * wanted
    world.queue("1.1/1")
    world.take()
    world.machine.attempts["1.1/1"].timeout = 1e6
    world.heartbeats.step()
    world.owner.pause(pause, now=True)
    world.now += seconds
    world.heartbeats.step()
    world.agent.tick()
    world.deliver()
    assert world.outcomes == outcomes


def test_a_job_that_cannot_be_frozen_is_given_back_only_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all processors are busy, a freeze may fail for a while. Seen to fail when a few failures are enough."""

    def fail(_attempt: str) -> None:
        raise CannotStart("unable to freeze")

    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.machine.attempts["1.1/1"].timeout = 1e6
    monkeypatch.setattr(world.runner, "freeze", fail)
    world.owner.pause(None, now=True)
    for _ in range(59):
        world.now += 1
        world.agent.tick()
    assert "TERM" not in [word for word, _ in world.runner.calls]
    world.now += 2
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.1/1": "released"}


def test_waiting_attempts_are_given_back_when_the_worker_is_paused(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.hold()
    world.owner.pause(3600, now=False)
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.1/1": "released"}
    before = len(world.coordinator.calls)
    world.claimer.step()
    assert len(world.coordinator.calls) == before
    world.now += 3601
    world.owner.apply()
    assert not world.machine.gate.closed


def test_nothing_is_claimed_beyond_what_the_owner_offers(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1", "1.2/1", "1.3/1")
    world.take()
    world.take()
    assert len(world.runner.running) == 2
    assert [message.free.cpus for name, message in world.coordinator.calls if name == "claim"] == [2.0]
    world.runner.end("1.1/1", Exit(code=0, seconds=100.0))
    world.now += 1
    world.take()
    assert sorted(world.runner.running) == ["1.2/1", "1.3/1"]
    assert [message.free.cpus for name, message in world.coordinator.calls if name == "claim"] == [2.0, 1.0]


def test_short_jobs_are_prefetched_and_given_back_if_there_is_never_room_for_them(tmp_path: Path) -> None:
    names = [f"1.{number}/1" for number in range(1, 60)]
    world = SteppedWorker(tmp_path, lambda _launch: Script(exit=Exit(code=0, seconds=0.001)))
    world.queue(*names[:30])
    while world.coordinator.queue:
        world.now += 0.1
        world.take()
    assert world.machine.ledger.average < 1
    world.runner.script = running
    world.queue(*names[30:])
    for _ in range(4):
        world.now += 0.1
        world.take()
    claims = [message for name, message in world.coordinator.calls if name == "claim"]
    assert all(message.free.cpus <= 2 for message in claims)
    assert len(world.machine.ledger.waiting) > 0
    world.now += 6
    world.agent.tick()  # they are recalled from their runner,
    world.agent.tick()  # and given back to the coordinator
    world.deliver()
    assert len(world.runner.running) == 2
    assert "released" in world.outcomes.values()


def test_the_store_is_asked_about_the_artifacts_of_many_results_at_once(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    uploaded: list[str] = []
    asked: list[int] = []

    def missing(digests: list[str]) -> dict[str, MissingBlob]:
        asked.append(len(digests))
        return {sha256: MissingBlob(sha256=sha256, url="") for sha256 in digests}

    world.coordinator.missing = missing  # type: ignore[method-assign]
    world.coordinator.upload = lambda path, sha256, size, place=None: uploaded.append(sha256)  # type: ignore[method-assign]
    world.queue("1.1/1", "1.2/1", artifacts=[{"path": "out"}], resources={"cpus": 1})
    world.take()
    for name in ("1.1/1", "1.2/1"):
        (world.spool.folder(name) / "work" / "out").write_text(name)
        world.runner.end(name, Exit(code=0, seconds=1.0))
    world.deliver()
    world.deliver()
    assert asked == [2]
    assert len(set(uploaded)) == 2
    assert world.outcomes == {"1.1/1": "succeeded", "1.2/1": "succeeded"}


def test_a_missing_blob_is_uploaded_again_before_the_next_finish(world: SteppedWorker) -> None:
    world.queue("1.1/1")
    world.take()
    world.coordinator.answers = {"1.1/1": "missing_blobs"}
    world.deliver()
    assert world.spool.unsent() == ["1.1/1"]
    world.coordinator.answers = {}
    world.deliver()
    assert world.spool.unsent() == []


def test_one_result_that_is_refused_does_not_hold_up_the_others(world: SteppedWorker) -> None:
    world.queue("1.1/1", "1.2/1")
    world.take()
    finish = world.coordinator.finish

    def picky(message: Finish) -> Finished:
        if any(each.attempt == "1.1/1" and each.outcome == "succeeded" for each in message.results):
            raise Refused(422, "invalid_job", "a path is bad")
        return finish(message)

    world.coordinator.finish = picky  # type: ignore[method-assign]
    for _ in range(4):
        world.deliver()
    assert world.outcomes == {"1.2/1": "succeeded", "1.1/1": "error"}
    assert world.spool.unsent() == []


def test_a_token_that_is_refused_twice_stops_running_jobs_and_is_reported_once(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.coordinator.refusal = Refused(401, "unauthenticated", "unknown token")
    world.heartbeats.step()
    assert world.runner.running
    world.heartbeats.ask_about("1.1/1")
    assert world.runner.running  # two refusals at the same moment count as one
    for _ in range(5):
        world.now += world.heartbeats.interval
        world.heartbeats.step()
    assert not world.runner.running
    assert sum("does not accept this worker's token" in line for line in world.said) == 1
    world.coordinator.refusal = None
    world.heartbeats.step()
    assert not world.machine.gate.closed


def test_a_superseded_session_says_so(world: SteppedWorker) -> None:
    world.coordinator.refusal = Refused(409, "superseded", "a newer session of worker w has registered")
    with pytest.raises(Superseded):
        world.heartbeats.step()


# Another session


def test_recovery_adopts_running_attempts_delivers_ended_ones_and_starts_the_others(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.queue("1.3/1")
    world.spool.claim_answered("x", world.coordinator.queue)
    world.coordinator.queue.clear()
    world.runner.tell = lambda _events: None  # the worker is dead
    world.runner.end("1.2/1", Exit(code=7, seconds=1.0))

    assert sorted(world.wake("boot")) == ["1.1/1", "1.2/1", "1.3/1"]
    world.deliver()
    assert world.outcomes == {"1.2/1": "failed"}
    world.heartbeats.step()
    world.runner.end("1.1/1", Exit(code=0, seconds=2.0))
    assert "1.3/1" in world.runner.running
    assert world.runner.calls.count(("start", "1.1/1")) == 1


def test_recovery_after_a_reboot_keeps_results_and_nothing_else(tmp_path: Path) -> None:
    done = Exit(code=0, seconds=0.1)
    world = SteppedWorker(tmp_path, lambda launch: Script(exit=done if launch.attempt == "1.1/1" else None))
    world.queue("1.1/1", "1.2/1")
    world.coordinator.away = {"finish"}
    world.take()
    world.deliver()
    world.runner.running.clear()
    world.runner.ended["1.2/1"] = Exit(code=0)  # what Podman says about a container that ran during a power cut

    assert world.wake("another boot") == ["1.1/1"]
    world.coordinator.away = set()
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}


def test_recovery_gives_up_lost_attempts_and_forgets_unanswered_claims(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.spool.claim_asked("never answered")
    world.runner.running.clear()
    assert world.wake("boot") == []
    assert world.spool.requests == set()
    assert any("giving it up" in line for line in world.said)
    assert any(what == "discard" for what, _ in world.runner.calls)


def while_the_claim_waits(world: SteppedWorker, work: Callable[[], object]) -> None:
    """Do this while the claimer's next claim is at the coordinator, before that looks for jobs."""
    claim = world.coordinator.claim

    def wait(message: Claim) -> Claimed | NothingClaimed:
        world.coordinator.claim = claim  # type: ignore[method-assign]
        work()
        return claim(message)

    world.coordinator.claim = wait  # type: ignore[method-assign]


def claim_requests(world: SteppedWorker) -> list[tuple[str, float]]:
    """The id of each request in a claim or a finish, with the CPUs that it asked for."""
    asked = [message if name == "claim" else message.claim for name, message in world.coordinator.calls]
    return [(each.request_id, each.free.cpus) for each in asked if each is not None]


@pytest.mark.parametrize("gives_with_finish", [True, False])
def test_a_finish_claims_all_free_room_while_a_claim_waits_for_a_part_of_it(
    tmp_path: Path, gives_with_finish: bool
) -> None:
    """Both carry the same request id, so the attempts that both bring are started once. Seen to fail when each has its
    own id: a large job finds two parts of the room, and fits into neither."""
    world = SteppedWorker(tmp_path, running)
    world.coordinator.gives_with_finish = gives_with_finish
    world.queue("1.1/1")
    world.take()

    def end() -> None:
        world.runner.end("1.1/1", Exit(code=0, seconds=100.0))
        world.queue("1.2/1", "1.3/1")
        world.deliver()

    while_the_claim_waits(world, end)
    world.take()
    (_, first), (carried, whole), (waits, part) = claim_requests(world)
    assert (first, part, whole) == (2.0, 1.0, 2.0)
    assert waits == carried
    starts = sorted(name for what, name in world.runner.calls if what == "start")
    assert starts == (["1.1/1", "1.2/1", "1.3/1"] if gives_with_finish else ["1.1/1", "1.2/1"])
    assert not world.spool.requests


def test_room_that_is_freed_without_a_result_is_claimed_while_a_claim_waits_for_a_part_of_it(tmp_path: Path) -> None:
    """The result waits for its uploads. Seen to fail when only a finish with a result carries a claim."""
    world = SteppedWorker(tmp_path, lambda launch: Script(output=b"x" * 100_000))
    world.coordinator.gives_with_finish = True
    world.queue("1.1/1")
    world.take()

    def end() -> None:
        world.runner.end("1.1/1", Exit(code=0, seconds=100.0))
        world.queue("1.2/1")
        world.outbox.step()

    while_the_claim_waits(world, end)
    world.take()
    assert [cpus for _, cpus in claim_requests(world)] == [2.0, 2.0, 1.0]
    assert world.outcomes == {}
    assert ("start", "1.2/1") in world.runner.calls


def test_a_large_waiting_job_gets_its_room_although_small_ones_keep_coming(tmp_path: Path) -> None:
    """Seen to fail when small ones may overtake it endlessly: it is given back and claimed again, forever."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.queue("2.1/1", resources={"cpus": 2})
    world.queue(*[f"3.{number}/1" for number in range(1, 20)])
    world.spool.claim_answered("x", world.coordinator.queue)
    world.agent.accept(world.coordinator.queue, sent=world.now, waited_seconds=0.0)
    for _ in range(12):
        world.now += 0.4
        for name in sorted(world.runner.running)[:1]:
            world.runner.end(name, Exit(code=0, seconds=0.4))
    assert ("start", "2.1/1") in world.runner.calls


def test_a_claim_beside_running_jobs_waits_only_briefly(world: SteppedWorker) -> None:
    """The free room may change without the coordinator's knowledge, so it is claimed again soon."""
    world.runner.script = running
    world.claimer.step()
    world.queue("1.1/1")
    world.take()
    world.claimer.step()
    waits = [message.wait_seconds for name, message in world.coordinator.calls if name == "claim"]
    assert waits == [IDLE_WAIT_SECONDS, IDLE_WAIT_SECONDS, PART_WAIT_SECONDS]


def test_the_claimer_waits_for_the_answer_of_a_finish_and_then_claims_at_once(world: SteppedWorker) -> None:
    """Seen to fail when the claimer asks beside the finish, which carries the same request with all of the room."""
    world.runner.script = running
    world.queue("1.1/1")
    world.take()
    finish = world.coordinator.finish

    def while_the_finish_is_on_its_way(message: Finish) -> Finished:
        world.claimer.step()
        return finish(message)

    world.coordinator.finish = while_the_finish_is_on_its_way  # type: ignore[method-assign]
    world.runner.end("1.1/1", Exit(code=0, seconds=100.0))
    world.rooms.clear()
    world.outbox.step()
    assert [name for name, _ in world.coordinator.calls] == ["claim", "finish"]
    assert world.rooms == [world.now], "the claimer is woken"
    world.claimer.step()
    assert [name for name, _ in world.coordinator.calls] == ["claim", "finish", "claim"]


def test_a_claim_that_found_no_work_is_retried_under_the_same_id(world: SteppedWorker) -> None:
    for _ in range(3):
        world.take()
    assert len({request for request, _ in claim_requests(world)}) == 1
    assert len(world.spool.requests) == 1


def test_a_request_whose_attempts_have_all_expired_is_not_used_again(world: SteppedWorker) -> None:
    """Seen to fail when its id is used again: it never brings any other attempts."""
    world.take()
    [request] = world.spool.requests
    world.coordinator.claim = lambda message: Claimed(assignments=[])  # type: ignore[method-assign]
    world.take()
    assert request not in world.spool.requests


def test_rule_02_a_program_is_started_only_while_its_lease_is_certainly_alive(tmp_path: Path) -> None:
    """Seen to fail when a program is started when its lease may be over, and in seed 8743: its job was canceled."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.queue("1.3/1")
    world.spool.claim_answered("x", world.coordinator.queue)
    world.agent.accept(world.coordinator.queue, sent=world.now - 20.0, waited_seconds=10.0)
    world.now += 45.0
    world.runner.end("1.1/1", Exit(code=0, seconds=45.0))
    assert ("start", "1.3/1") not in world.runner.calls
    world.heartbeats.step()
    assert world.runner.calls.count(("start", "1.3/1")) == 1


def test_rule_02_a_lease_counts_from_when_its_request_was_sent_plus_its_wait(tmp_path: Path) -> None:
    """A program is started one second before that moment, but not one second after it."""
    for late, starts in ((-1.0, True), (1.0, False)):
        world = SteppedWorker(tmp_path / str(starts), running)
        world.queue("1.1/1", "1.2/1")
        world.take()
        world.queue("1.3/1")
        world.spool.claim_answered("x", world.coordinator.queue)
        world.agent.accept(world.coordinator.queue, sent=world.now - 20.0, waited_seconds=10.0)
        world.now += 60.0 - 5.0 - 10.0 + late
        world.runner.end("1.1/1", Exit(code=0, seconds=45.0))
        assert (("start", "1.3/1") in world.runner.calls) == starts


def test_rule_02_a_container_whose_preparation_outlasted_its_lease_waits_for_a_heartbeat(tmp_path: Path) -> None:
    """Seen to fail when the lease is checked only before the preparation."""
    world = SteppedWorker(tmp_path, running)

    def pull(_launch: Launch) -> None:
        world.now += 100.0

    world.runner.prepare = pull  # type: ignore[assignment,method-assign]
    world.queue("1.1/1", image="x")
    world.take()
    assert ("start", "1.1/1") not in world.runner.calls
    world.runner.prepare = lambda launch: None  # type: ignore[method-assign]
    world.heartbeats.step()
    assert world.runner.calls.count(("start", "1.1/1")) == 1


def test_rule_02_attempts_that_a_restarted_worker_had_not_started_wait_for_a_heartbeat(tmp_path: Path) -> None:
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.queue("1.3/1")
    world.spool.claim_answered("x", world.coordinator.queue)
    world.runner.ended |= {name: Exit(code=0) for name in ("1.1/1", "1.2/1")}
    world.runner.running.clear()
    world.wake("boot")
    assert ("start", "1.3/1") not in world.runner.calls
    world.heartbeats.step()
    assert world.runner.calls.count(("start", "1.3/1")) == 1


def test_a_claim_in_an_unanswered_finish_is_retried(tmp_path: Path) -> None:
    """Even if the next finish gives a job back and carries no claim. Seen to fail when the claim is dropped."""
    world = SteppedWorker(tmp_path, running)
    world.coordinator.gives_with_finish = True
    world.queue("1.1/1", "1.2/1", "1.3/1")
    world.take()
    world.runner.end("1.1/1", Exit(code=0, seconds=5.0))
    world.coordinator.lose_answer_of = "finish"
    world.deliver()
    world.stop("1.2/1", StopCause.RELEASE, "no room")
    world.deliver()
    assert ("start", "1.3/1") not in world.runner.calls
    world.take()
    assert world.runner.calls.count(("start", "1.3/1")) == 1
    assert not world.spool.requests


def test_a_full_disk_loses_no_result_that_is_being_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail when a claim that cannot be removed from the disk loses the results."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.runner.end("1.1/1", Exit(code=0, seconds=5.0))
    world.coordinator.lose_answer_of = "finish"
    world.deliver()
    world.machine.gate.close("disk", "full")

    def full(*_records: object) -> int:
        raise SpoolFullError("no space")

    monkeypatch.setattr(world.spool, "_write", full)
    world.deliver()
    assert set(world.outcomes) == {"1.1/1"}
    assert not world.machine.attempts


def test_a_finish_that_is_refused_because_of_its_claim_is_sent_without_it(tmp_path: Path) -> None:
    """Seen to fail when the result is replaced by an error."""
    world = SteppedWorker(tmp_path)
    real = world.coordinator.finish

    def finish(message: Finish) -> Finished:
        if message.claim is not None:
            raise Refused(400, "malformed", "no such claim")
        return real(message)

    world.coordinator.finish = finish  # type: ignore[method-assign]
    world.queue("1.1/1")
    world.take()
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}
    assert not world.spool.requests


def test_more_work_is_claimed_while_a_result_waits_for_its_uploads(tmp_path: Path) -> None:
    """Seen to fail when only a finish brings the next claim."""
    world = SteppedWorker(tmp_path, lambda launch: Script(output=b"x" * 100_000))
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.runner.end("1.1/1", Exit(code=0, seconds=5.0))
    world.outbox.step()
    assert world.rooms


def test_an_adopted_attempt_with_an_unknown_start_does_not_wake_the_heartbeat_forever(tmp_path: Path) -> None:
    """A journal of release 0.1 does not say when a program began. Seen to fail when 0 counts as a time long ago."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.stage("1.1/1").began = 0.0
    world.now += 60
    assert not world.agent.has_unreported_program(0.5)


def test_an_attempt_for_which_there_is_no_room_is_given_back_however_it_was_claimed(tmp_path: Path) -> None:
    """A claim in a finish and a waiting claim can together bring more than fits. Seen to fail when only prefetched
    attempts are given back: the job then waits here for as long as the others run."""
    world = SteppedWorker(tmp_path, running)
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.queue("1.3/1")
    world.spool.claim_answered("x", world.coordinator.queue)
    world.agent.accept(world.coordinator.queue, sent=world.now, waited_seconds=0.0)
    world.now += 6
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.3/1": "released"}
