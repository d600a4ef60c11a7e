"""The real claimer, heart, outbox, agent and spool in one thread, with a pretended coordinator and a scripted runner.

Nothing here waits: time is a number that the test moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deborgen_shared.messages import (
    Assignment,
    Claim,
    Claimed,
    Finish,
    Finished,
    Heartbeat,
    HeartbeatAnswer,
    Orders,
    Register,
    Registered,
    Result,
)
from deborgen_shared.transport import Refused, Unreachable
from deborgen_worker import recovery
from deborgen_worker.agent import Agent
from deborgen_worker.cache import BlobCache
from deborgen_worker.capacity import Amount
from deborgen_worker.claims import Claimer
from deborgen_worker.contact import Contact
from deborgen_worker.coordinator import NoWork
from deborgen_worker.disk import Disk
from deborgen_worker.heartbeat import Heart, Superseded
from deborgen_worker.outbox import LogPump, Outbox
from deborgen_worker.owner import Owner
from deborgen_worker.policy import PauseFile
from deborgen_worker.runners.protocol import Exit, Launch
from deborgen_worker.runners.scripted import Script, ScriptedRunner
from deborgen_worker.settings import Settings
from deborgen_worker.spool import Spool
from deborgen_worker.starting import LANE_WAIT_SECONDS

GIB = 1 << 30


@dataclass
class Pretend:
    """A coordinator that answers as the test says, and remembers what it was asked."""

    queue: list[Assignment] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)
    away: set[str] = field(default_factory=set)
    refusal: Refused | None = None
    granted: dict[str, list[Assignment]] = field(default_factory=dict)
    lose_answer_of: str = ""

    def _called(self, name: str, message: Any) -> None:
        self.calls.append((name, message))
        if name in self.away:
            raise Unreachable("away")
        if self.refusal is not None:
            raise self.refusal

    def register(self, message: Register) -> Registered:
        self._called("register", message)
        return Registered(lease_seconds=60, heartbeat_seconds=10, lost=[])

    def claim(self, message: Claim) -> Claimed | NoWork:
        self._called("claim", message)
        if message.request_id not in self.granted:
            taken, cpus = [], message.free.cpus
            while self.queue and len(taken) < message.max and cpus >= 1:
                taken.append(self.queue.pop(0))
                cpus -= not message.ahead
            self.granted[message.request_id] = taken
        if self.lose_answer_of == "claim":
            self.lose_answer_of = ""
            raise Unreachable("the answer was lost")
        found = self.granted[message.request_id]
        return Claimed(assignments=found) if found else NoWork(0.0)

    def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        self._called("heartbeat", message)
        return HeartbeatAnswer(
            attempts={each.attempt: self.words.get(each.attempt, "continue") for each in message.holding},  # type: ignore[misc]
            orders=Orders(),
        )

    def finish(self, message: Finish) -> Finished:
        self._called("finish", message)
        self.results += message.results
        return Finished(results={each.attempt: self.answers.get(each.attempt, "accepted") for each in message.results})  # type: ignore[misc]

    def log(self, attempt: str, offset: int, data: bytes, session: str) -> int:
        self._called("log", attempt)
        held = self.logs.get(attempt, b"")
        if offset <= len(held):
            self.logs[attempt] = held[:offset] + data
        return len(self.logs.get(attempt, b""))

    def leave(self) -> None: ...

    def missing(self, digests: list[str]) -> dict[str, str]:
        return {}

    def upload(self, path: Path, sha256: str, size: int, url: str = "") -> None: ...

    def download(self, sha256: str, target: Path) -> None: ...


class World:
    """One worker, taken apart into its steps."""

    def __init__(self, folder: Path, script: Callable[[Launch], Script] | None = None, **settings: Any) -> None:
        self.folder = folder
        self.now = 1000.0
        self.said: list[str] = []
        self.coordinator = Pretend()
        self.settings = Settings(name="w", **settings)
        self.runner = ScriptedRunner()
        if script is not None:
            self.runner.script = script
        self.boot = "boot"
        self.wake(boot="boot")

    def wake(self, boot: str) -> list[str]:
        """A new session over what the last one left on disk."""
        self.spool = Spool(self.folder, Disk(), boot)
        self.contact = Contact(lambda: self.now, self.said.append)
        self.agent = Agent(
            self.settings, self.spool, BlobCache(self.folder / "cache", 0, self.coordinator.download),
            Amount(2, 8 * GIB, 0, 100 * GIB),
            clock=lambda: self.now, say=self.said.append, run_slow=lambda work: work(),
        )  # fmt: skip
        self.heart = Heart(self.agent, self.coordinator, self.contact, "s")
        self.outbox = Outbox(self.agent, self.coordinator, self.contact, "s")
        self.pump = LogPump(self.agent, self.coordinator, self.contact, "s")
        self.claimer = Claimer("claim", self.agent, self.coordinator, self.contact, self.heart, "s")
        self.owner = Owner(self.agent, self.heart, self.contact, PauseFile(self.folder, Disk()), wall=lambda: self.now)
        self.agent.runners = {"subprocess": self.runner}
        self.runner.on_exit = self.agent.exited
        self.agent.on_result = self.outbox.add
        return recovery.recover(self.agent, boot)

    def queue(self, *names: str, **spec: Any) -> None:
        for name in names:
            job, _, number = name.partition("/")
            body = {"run": ["/bin/true"], **spec}
            assignment = Assignment(
                attempt=name, job=job, number=int(number), spec=body, params={}, inputs=[], secrets={},
                timeout_seconds=60.0, lease_seconds=60.0,
            )  # fmt: skip
            self.coordinator.queue.append(assignment)

    def short_ones_end(self) -> None:
        """So many, just now, that others are claimed ahead."""
        ledger = self.agent.ledger
        ledger.average, ledger.streak, ledger.ended, ledger.short_seconds = 0.001, 32, self.now, 10.0

    def take(self) -> None:
        self.claimer.step()
        self.heart.step_confirm()

    def deliver(self) -> None:
        self.now += 1
        self.outbox.step_uploads()
        self.outbox.step()

    @property
    def outcomes(self) -> dict[str, str]:
        return {each.attempt: each.outcome for each in self.coordinator.results}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def running(_launch: Launch) -> Script:
    return Script()


def test_a_job_is_confirmed_before_it_starts_and_reported_once(world: World) -> None:
    world.queue("1.1/1")
    world.claimer.step()
    assert world.runner.calls == []
    world.heart.step_confirm()
    assert ("start", "1.1/1") in world.runner.calls
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}
    assert world.spool.entries == {}
    assert not world.spool.folder("1.1/1").exists()


def test_fault_6_a_claim_whose_answer_was_lost_is_sent_again_as_it_was(world: World) -> None:
    """Seen to fail when a claim whose answer was lost is forgotten."""
    world.queue("1.1/1", "1.2/1", "1.3/1", "1.4/1")
    world.coordinator.lose_answer_of = "claim"
    world.take()
    world.take()
    asked = [message.request_id for name, message in world.coordinator.calls if name == "claim"]
    assert len(asked) == 2
    assert len(set(asked)) == 1
    assert [name for what, name in world.runner.calls if what == "start"] == ["1.1/1", "1.2/1"]


def test_fault_9_a_lost_confirmation_starts_nothing_until_the_next_heartbeat(world: World) -> None:
    """Seen to fail when a program is started before its attempt is confirmed."""
    world.queue("1.1/1")
    world.coordinator.away = {"heartbeat"}
    world.take()
    assert ("start", "1.1/1") not in world.runner.calls
    world.coordinator.away = set()
    world.heart.step()
    world.heart.step()
    assert world.runner.calls.count(("start", "1.1/1")) == 1


def test_a_result_is_sent_until_it_is_acknowledged(world: World) -> None:
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


def test_a_worker_that_cannot_deliver_its_results_asks_for_no_more_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail without UNSENT_MOST: a worker piled up more results than it may name when it registers."""
    monkeypatch.setattr("deborgen_worker.claims.UNSENT_MOST", 4)
    world = World(tmp_path)
    world.coordinator.away = {"finish"}
    world.queue(*[f"1.{number}/1" for number in range(1, 30)])
    for _ in range(20):
        world.take()
        world.deliver()
    assert 4 <= len(world.spool.unsent()) < 4 + 8, "no more than one claim brings beyond the bound"
    world.coordinator.away = set()
    for _ in range(60):
        world.take()
        world.deliver()
    assert len(world.outcomes) == 29


def test_a_cancel_sends_term_then_kill_after_the_grace(tmp_path: Path) -> None:
    world = World(tmp_path, lambda _launch: Script(ignores_term=True), kill_grace=10.0)
    world.queue("1.1/1")
    world.take()
    world.coordinator.words = {"1.1/1": "cancel"}
    world.heart.step()
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
    world = World(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.coordinator.words = {"1.1/1": "stop"}
    world.heart.step()
    world.deliver()
    assert ("KILL", "1.1/1") in world.runner.calls
    assert world.outcomes == {}
    assert world.spool.entries == {}


def test_a_timeout_is_the_programs_failure_and_frozen_time_does_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, running, freeze_limit=1000.0)
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


def test_what_waits_is_given_back_when_the_worker_is_paused(tmp_path: Path) -> None:
    world = World(tmp_path, running)
    world.queue("1.1/1")
    world.claimer.step()
    world.owner.pause(3600, now=False)
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.1/1": "released"}
    before = len(world.coordinator.calls)
    world.claimer.step()
    assert len(world.coordinator.calls) == before
    world.now += 3601
    world.owner.apply()
    assert not world.agent.gate.closed


def test_nothing_is_claimed_beyond_what_the_owner_offers(tmp_path: Path) -> None:
    world = World(tmp_path, running)
    world.queue("1.1/1", "1.2/1", "1.3/1")
    world.take()
    world.take()
    assert len(world.runner.running) == 2
    assert [message.free.cpus for name, message in world.coordinator.calls if name == "claim"] == [2.0]
    world.runner.end("1.1/1", Exit(code=0, seconds=100.0))
    world.take()
    assert sorted(world.runner.running) == ["1.2/1", "1.3/1"]
    assert [message.free.cpus for name, message in world.coordinator.calls if name == "claim"] == [2.0, 1.0]


def test_short_jobs_are_claimed_ahead_and_given_back_if_their_turn_never_comes(tmp_path: Path) -> None:
    names = [f"1.{number}/1" for number in range(1, 60)]
    world = World(tmp_path, lambda _launch: Script(exit=Exit(code=0, seconds=0.001)))
    world.queue(*names[:30])
    while world.coordinator.queue:
        world.take()
    assert world.agent.ledger.average < 1
    world.runner.script = running
    world.queue(*names[30:])
    for _ in range(4):
        world.take()
    claims = [message for name, message in world.coordinator.calls if name == "claim"]
    assert all(message.free.cpus <= 2 for message in claims)
    assert len(world.agent.ledger.waiting) > 0
    world.now += 6
    world.agent.tick()
    world.deliver()
    assert len(world.runner.running) == 2
    assert "released" in world.outcomes.values()


def test_the_store_is_asked_about_the_artifacts_of_many_results_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, running)
    uploaded: list[str] = []
    asked: list[int] = []

    def missing(digests: list[str]) -> dict[str, str]:
        asked.append(len(digests))
        return dict.fromkeys(digests, "")

    world.coordinator.missing = missing  # type: ignore[method-assign]
    world.coordinator.upload = lambda _path, sha256, _size, _url="": uploaded.append(sha256)  # type: ignore[method-assign]
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


def test_a_missing_blob_is_uploaded_again_before_the_next_finish(world: World) -> None:
    world.queue("1.1/1")
    world.take()
    world.coordinator.answers = {"1.1/1": "missing_blobs"}
    world.deliver()
    assert world.spool.unsent() == ["1.1/1"]
    world.coordinator.answers = {}
    world.deliver()
    assert world.spool.unsent() == []


def test_one_result_that_is_refused_does_not_hold_up_the_others(world: World) -> None:
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


def test_a_token_that_is_refused_twice_stops_what_runs_and_is_said_once(tmp_path: Path) -> None:
    world = World(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.coordinator.refusal = Refused(401, "unauthenticated", "unknown token")
    world.heart.step()
    assert world.runner.running
    for _ in range(5):
        world.heart.step()
    assert not world.runner.running
    assert sum("does not accept the token" in line for line in world.said) == 1
    world.coordinator.refusal = None
    world.heart.step()
    assert not world.agent.gate.closed


def test_a_superseded_session_says_so(world: World) -> None:
    world.coordinator.refusal = Refused(409, "superseded", "a newer session of worker w has registered")
    with pytest.raises(Superseded):
        world.heart.step()


# Another session


def test_recovery_adopts_what_runs_delivers_what_ended_and_starts_what_never_did(tmp_path: Path) -> None:
    world = World(tmp_path, running)
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.queue("1.3/1")
    world.agent.spool.claim_answered("x", world.coordinator.queue)
    world.coordinator.queue.clear()
    world.runner.on_exit = lambda _ends: None  # the worker is dead
    world.runner.end("1.2/1", Exit(code=7, seconds=1.0))

    assert sorted(world.wake("boot")) == ["1.1/1", "1.2/1", "1.3/1"]
    world.deliver()
    assert world.outcomes == {"1.2/1": "failed"}
    world.heart.step()
    world.runner.end("1.1/1", Exit(code=0, seconds=2.0))
    assert "1.3/1" in world.runner.running
    assert world.runner.calls.count(("start", "1.1/1")) == 1


def test_recovery_after_a_reboot_keeps_results_and_nothing_else(tmp_path: Path) -> None:
    done = Exit(code=0, seconds=0.1)
    world = World(tmp_path, lambda launch: Script(exit=done if launch.attempt == "1.1/1" else None))
    world.queue("1.1/1", "1.2/1")
    world.coordinator.away = {"finish"}
    world.take()
    world.deliver()
    world.runner.running.clear()
    world.runner.ended["1.2/1"] = Exit(code=0)  # what Podman claims of a container that ran when the power went

    assert world.wake("another boot") == ["1.1/1"]
    world.coordinator.away = set()
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"}


def test_recovery_gives_up_what_is_gone_and_forgets_claims_without_answer(tmp_path: Path) -> None:
    world = World(tmp_path, running)
    world.queue("1.1/1")
    world.take()
    world.spool.claim_asked("never answered")
    world.runner.running.clear()
    assert world.wake("boot") == []
    assert world.spool.requests == set()
    assert any("is given up" in line for line in world.said)
    assert any(what == "discard" for what, _ in world.runner.calls)


# Lanes


def busy(tmp_path: Path) -> World:
    """Two programs run, and jobs are known to be so short that others may wait behind them with the runner."""
    world = World(tmp_path, running)
    world.short_ones_end()
    world.queue(*[f"1.{number}/1" for number in range(1, 9)])
    for _ in range(4):
        world.take()
    assert sorted(world.runner.running) == ["1.1/1", "1.2/1"]
    return world


def stages(world: World) -> dict[str, str]:
    return {name: each.stage.value for name, each in sorted(world.agent.attempts.items())}


def test_short_jobs_wait_with_the_runner_and_begin_without_being_told_to(tmp_path: Path) -> None:
    world = busy(tmp_path)
    assert [name for what, name in world.runner.calls if what == "wait"] == [f"1.{n}/1" for n in range(3, 9)]
    world.runner.end("1.1/1", Exit(code=0, seconds=0.001))
    assert sorted(world.runner.running) == ["1.2/1", "1.3/1"]
    assert stages(world)["1.3/1"] == "running"
    assert stages(world)["1.4/1"] == "next"
    assert sorted(world.agent.ledger.running) == ["1.2/1", "1.3/1"]
    for number in (3, 2, 4, 6, 5, 7, 8):
        world.runner.end(f"1.{number}/1", Exit(code=0, seconds=0.001))
        assert len(world.agent.ledger.running) <= 2
    world.deliver()
    assert world.outcomes == {f"1.{n}/1": "succeeded" for n in range(1, 9)}
    assert world.agent.ledger.free() == world.agent.ledger.offered


def test_one_that_waits_with_the_runner_is_canceled_without_ever_beginning(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.coordinator.words = {"1.3/1": "cancel"}
    world.heart.step()
    world.runner.end("1.1/1", Exit(code=0, seconds=0.001))
    assert sorted(world.runner.running) == ["1.2/1", "1.5/1"]
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded", "1.3/1": "canceled"}
    assert ("start", "1.3/1") not in world.runner.calls


def test_a_pause_calls_back_and_gives_back_what_waits_with_the_runner(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.owner.pause(3600, now=False)
    world.runner.end("1.1/1", Exit(code=0, seconds=0.001))
    assert sorted(world.runner.running) == ["1.2/1"]
    world.agent.tick()
    world.deliver()
    assert world.outcomes == {"1.1/1": "succeeded"} | {f"1.{n}/1": "released" for n in range(3, 9)}


def test_what_waits_behind_one_that_turns_out_long_is_called_back_and_begins_elsewhere(tmp_path: Path) -> None:
    world = busy(tmp_path)
    waiting = [name for name, stage in stages(world).items() if stage == "next"]
    world.now += LANE_WAIT_SECONDS + 0.1
    world.agent.tick()
    assert {name for what, name in world.runner.calls if what == "recall"} == set(waiting)
    world.agent.starter.start_ready()
    assert all(stages(world)[name] == "confirmed" for name in waiting)  # both have run too long to wait behind them
    world.runner.end("1.2/1", Exit(code=0, seconds=1.0))
    assert len(world.runner.running) == 2
    assert "1.1/1" in world.runner.running


def test_nothing_waits_behind_one_that_has_less_room(tmp_path: Path) -> None:
    world = World(tmp_path, running)
    world.short_ones_end()
    world.queue("1.1/1", "1.2/1", resources={"cpus": 1})
    world.take()
    assert not world.coordinator.queue
    world.queue("2.1/1", resources={"cpus": 2})
    world.queue("3.1/1", resources={"cpus": 0.5})
    world.agent.spool.claim_answered("x", world.coordinator.queue)
    names = world.agent.accept(world.coordinator.queue)
    world.agent.told(dict.fromkeys(names, "continue"))
    assert stages(world) == {"1.1/1": "running", "1.2/1": "running", "2.1/1": "confirmed", "3.1/1": "next"}


def test_a_worker_that_died_finds_what_waits_with_the_runner_and_takes_it_for_running(tmp_path: Path) -> None:
    world = busy(tmp_path)
    world.runner.on_exit = lambda _ends: None  # the worker is dead
    world.runner.end("1.1/1", Exit(code=0, seconds=0.001))
    held = world.wake("boot")
    assert "1.5/1" in held
    for name in list(world.runner.ended):
        assert name in held
    while world.runner.running:
        world.runner.end(next(iter(world.runner.running)), Exit(code=0, seconds=0.001))
    world.deliver()
    assert world.outcomes == {f"1.{n}/1": "succeeded" for n in range(1, 9)}
    started = [name for what, name in world.runner.calls if what == "start"]
    assert len(started) == len(set(started)) == 8


def test_two_claimers_that_part_the_room_do_not_starve_a_large_job(tmp_path: Path) -> None:
    """Seen to fail without `_found_nothing`: each asks for one of the two processors, for ever."""
    world = World(tmp_path, running)
    other = Claimer("other", world.agent, world.coordinator, world.contact, world.heart, "s")
    world.queue("1.1/1", "1.2/1")
    world.take()
    for name in ("1.1/1", "1.2/1"):
        world.runner.end(name, Exit(code=0, seconds=100.0))
        world.claimer.step()
        other.step()
    asked = [message.free.cpus for name, message in world.coordinator.calls if name == "claim"]
    assert asked[-1] == 2.0


def test_what_was_confirmed_long_ago_is_not_started_until_it_is_confirmed_again(tmp_path: Path) -> None:
    """Seen to fail without `_fresh`, and in seed 8743: its lease was over, and its job canceled, when its turn came."""
    world = World(tmp_path, running)
    world.queue("1.1/1", "1.2/1")
    world.take()
    world.queue("1.3/1")
    world.agent.spool.claim_answered("x", world.coordinator.queue)
    world.agent.told(dict.fromkeys(world.agent.accept(world.coordinator.queue), "continue"))
    world.now += 31
    world.runner.end("1.1/1", Exit(code=0, seconds=31.0))
    assert ("start", "1.3/1") not in world.runner.calls
    world.heart.step()
    assert world.runner.calls.count(("start", "1.3/1")) == 1
