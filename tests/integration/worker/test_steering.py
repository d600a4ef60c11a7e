"""Containers are frozen, woken and ended at moments at which Podman refuses although nothing is wrong."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deborgen_worker.folders import OWN
from deborgen_worker.runners.containers.engine import ContainerState, EngineError
from deborgen_worker.runners.containers.runner import ContainerRunner
from deborgen_worker.runners.podman import client, engine
from deborgen_worker.runners.podman.engine import PodmanEngine
from deborgen_worker.runners.protocol import CannotStart, Launch, RunnerDown
from deborgen_worker.runners.supervision import Supervision
from support.podman import IMAGE, Podman
from support.targeted_proxy import TargetedProxy
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, pytest.mark.root]
ATTEMPT = "1.1/1"


class Machine:
    """One attempt on a runner, and what Podman says about its container."""

    def __init__(self, podman: Podman, folder: Path, url: str) -> None:
        self.podman = podman
        self.name = f"w-{folder.name}"
        self.ends: list[Any] = []
        self.runner = ContainerRunner(PodmanEngine(self.name, url, folder), self.ends.extend, Supervision(folder))
        workspace = folder / "work"
        (workspace / OWN).mkdir(parents=True)
        self.launch = Launch(
            attempt=ATTEMPT, argv=("sleep", "1000"), env={}, folder=folder, workspace=workspace, image=IMAGE,
            memory=64 << 20, gives_way=False,
        )  # fmt: skip

    def start(self, *argv: str) -> None:
        self.launch = dataclasses.replace(self.launch, argv=argv or self.launch.argv)
        self.runner.start(self.launch)

    def status(self) -> str:
        [container] = self.podman.of(self.name)
        return self.podman("inspect", "-f", "{{.State.Status}}", container)


@pytest.fixture
def machine(podman: Podman, tmp_path: Path) -> Iterator[Machine]:
    yield Machine(podman, tmp_path, podman.url)
    podman.remove_all(f"w-{tmp_path.name}")


def test_a_container_can_be_frozen_and_woken_any_number_of_times(machine: Machine) -> None:
    """Seen to fail when Podman's refusal to pause a container twice is an error."""
    machine.start()
    for _ in range(2):
        machine.runner.freeze(ATTEMPT)
        machine.runner.freeze(ATTEMPT)
        assert machine.status() == "paused"
        machine.runner.thaw(ATTEMPT)
        machine.runner.thaw(ATTEMPT)
        assert machine.status() == "running"
    assert machine.ends == []


def test_a_container_that_somebody_else_paused_and_woke_can_still_be_steered(machine: Machine) -> None:
    machine.start()
    [container] = machine.podman.of(machine.name)
    machine.podman("pause", container)
    machine.runner.freeze(ATTEMPT)
    machine.podman("unpause", container)
    machine.runner.thaw(ATTEMPT)
    assert machine.status() == "running"


def test_a_container_that_is_frozen_before_its_start_starts_frozen(machine: Machine) -> None:
    """The attempt is called running a moment before. Seen to fail when the start forgets the freeze."""
    machine.runner.prepare(machine.launch)
    machine.runner.freeze(ATTEMPT)
    machine.start()
    assert machine.status() == "paused"
    machine.runner.thaw(ATTEMPT)
    assert machine.status() == "running"


@pytest.fixture
def starting(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets the test go on while the container is being started."""
    begun, start = threading.Event(), PodmanEngine.start

    def announced(self: PodmanEngine, container: str) -> None:
        begun.set()
        start(self, container)

    monkeypatch.setattr(PodmanEngine, "start", announced)
    thread = threading.Thread(target=machine.start)
    thread.start()
    assert begun.wait(60)
    yield
    thread.join(60)


def test_a_container_can_be_frozen_during_its_start(machine: Machine, starting: None) -> None:
    machine.runner.freeze(ATTEMPT)
    wait_until(lambda: machine.status() == "paused")


def test_a_container_gets_a_signal_that_is_sent_during_its_start(machine: Machine, starting: None) -> None:
    """Seen to fail when the signal does not wait for the start."""
    machine.runner.signal(ATTEMPT, "KILL")
    wait_until(lambda: machine.ends, 20)
    assert machine.ends[0].exit.code == 137


def test_a_container_that_was_ended_before_its_start_is_not_started(machine: Machine) -> None:
    """Seen to fail when a signal that comes before the start is lost."""
    machine.runner.prepare(machine.launch)
    machine.runner.signal(ATTEMPT, "TERM")
    with pytest.raises(CannotStart, match="it was ended before it started"):
        machine.start()
    assert machine.podman.of(machine.name) == []


def test_a_container_that_has_ended_can_be_frozen_woken_and_sent_a_signal(machine: Machine) -> None:
    """Seen to fail when Podman's refusal is an error."""
    machine.start("true")
    wait_until(lambda: machine.ends)
    container = machine.runner._containers[ATTEMPT]
    container.finished = False  # the worker has not heard of its end yet
    machine.runner.freeze(ATTEMPT)
    machine.runner.thaw(ATTEMPT)
    machine.runner.signal(ATTEMPT, "TERM")
    machine.podman.remove_all(machine.name)
    machine.runner.freeze(ATTEMPT)
    machine.runner.thaw(ATTEMPT)
    machine.runner.signal(ATTEMPT, "KILL")


@pytest.mark.parametrize("late", [0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2])
def test_a_container_that_is_just_ending_can_be_frozen_woken_and_sent_a_signal(machine: Machine, late: float) -> None:
    """At each of these moments Podman and its runtime refuse with another message, or not at all."""
    machine.start("sh", "-c", "echo up; while [ ! -e /job/go ]; do sleep 0.005; done; exit 3")
    (machine.launch.workspace / "go").touch()
    moment = time.monotonic() + late
    wait_until(lambda: time.monotonic() >= moment, every=0.002)
    for _ in range(3):
        machine.runner.freeze(ATTEMPT)
        machine.runner.thaw(ATTEMPT)
    wait_until(lambda: machine.ends)
    machine.runner.signal(ATTEMPT, "TERM")
    [ended] = machine.ends
    attempt, exit_ = ended.name, ended.exit
    assert (attempt, exit_.code, exit_.error) == (ATTEMPT, 3, "")


def test_a_frozen_container_can_be_killed_and_removed(machine: Machine) -> None:
    machine.start()
    machine.runner.freeze(ATTEMPT)
    machine.runner.signal(ATTEMPT, "KILL")
    wait_until(lambda: machine.ends)
    assert machine.ends[0].exit.code == 137
    machine.runner.discard(ATTEMPT)
    assert machine.podman.of(machine.name) == []


def test_a_frozen_container_is_woken_before_it_is_sent_term(machine: Machine) -> None:
    """Its program can then clean up. Seen to fail when TERM is sent to the frozen container, where it waits."""
    machine.start("sh", "-c", "trap 'exit 3' TERM; touch up; while true; do sleep 0.05; done")
    wait_until((machine.launch.workspace / "up").exists)
    machine.runner.freeze(ATTEMPT)
    machine.runner.signal(ATTEMPT, "TERM")
    wait_until(lambda: machine.ends)
    assert machine.ends[0].exit.code == 3


def test_term_is_not_sent_to_a_container_that_cannot_be_woken(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when the failure to wake it is ignored."""
    sent: list[str] = []

    def refuse(self: PodmanEngine, container: str) -> None:
        raise EngineError("it cannot be woken")

    machine.start()
    machine.runner.freeze(ATTEMPT)
    with monkeypatch.context() as patched:
        patched.setattr(PodmanEngine, "unpause", refuse)
        patched.setattr(PodmanEngine, "kill", lambda self, container, word: sent.append(word))
        with pytest.raises(CannotStart, match="it cannot be woken"):
            machine.runner.signal(ATTEMPT, "TERM")
    assert sent == []
    assert machine.status() == "paused"


def test_a_container_that_is_removed_while_it_runs_is_not_watched_any_more(machine: Machine) -> None:
    """Seen to fail when only its end stops the watch: the supervisor then waits for its time limit."""
    machine.start()
    supervision = machine.runner._supervision
    assert supervision.ask({"do": "list"})["list"] == [ATTEMPT]
    machine.runner.discard(ATTEMPT)
    assert supervision.ask({"do": "list"})["list"] == []


def test_a_removal_does_not_wait_for_a_program_that_ignores_term(machine: Machine) -> None:
    machine.start("sh", "-c", "trap '' TERM; while true; do sleep 0.1; done")
    [container] = machine.podman.of(machine.name)
    assert machine.podman.inspect(container)["Config"]["StopTimeout"] == 0
    machine.runner.discard(ATTEMPT)
    assert machine.podman.of(machine.name) == []


def test_a_host_that_cannot_pause_says_so(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example is rootless Podman with version 1 of cgroups."""

    def refuse(self: PodmanEngine, container: str) -> None:
        raise EngineError("pause is not supported here")

    monkeypatch.setattr(PodmanEngine, "pause", refuse)
    machine.start()
    with pytest.raises(CannotStart, match="pause is not supported here"):
        machine.runner.freeze(ATTEMPT)
    assert machine.status() == "running"


@pytest.mark.parametrize("fault", ["drop_before", "drop_after"])
def test_a_lost_request_or_answer_does_no_harm(podman_ready: None, tmp_path: Path, fault: str) -> None:
    """Seen to fail when a broken connection is an error at once."""
    own = Podman(tmp_path).start_service_on_a_port()
    try:
        with TargetedProxy(own.url.removeprefix("tcp://")) as proxy:
            machine = Machine(own, tmp_path, proxy.url.replace("http", "tcp"))
            lost = {"/pause", "/unpause", "/kill"}

            def aim(line: str, _body: bytes) -> str:
                word = next((each for each in lost if each in line), "")
                lost.discard(word)
                return fault if word else ""

            proxy.aim = aim
            machine.start()
            machine.runner.freeze(ATTEMPT)
            assert machine.status() == "paused"
            machine.runner.thaw(ATTEMPT)
            assert machine.status() == "running"
            machine.runner.signal(ATTEMPT, "KILL")
            wait_until(lambda: machine.ends)
            assert lost == set()
    finally:
        own.remove_all(f"w-{tmp_path.name}")
        own.stop_service()


def test_every_call_ends_when_podman_hangs(podman_ready: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail when podman-py's managers are called without a deadline."""
    own = Podman(tmp_path).start_service()
    machine = Machine(own, tmp_path, own.url)
    try:
        machine.start()
        own.service.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(own.service.pid).status() == psutil.STATUS_STOPPED)
        for module, name in (
            (client, "CONNECT_SECONDS"),
            (engine, "QUICK_SECONDS"),
            (engine, "SLOW_SECONDS"),
            (engine, "PULL_SECONDS"),
        ):
            monkeypatch.setattr(module, name, 0.2)
        assert machine.runner.check() == "Podman does not answer in time"
        calls: dict[str, Callable[[], object]] = {
            "prepare": lambda: machine.runner.prepare(dataclasses.replace(machine.launch, attempt="1.1/2")),
            "start": lambda: machine.runner.start(dataclasses.replace(machine.launch, attempt="1.1/2")),
            "pull": lambda: machine.runner._engine.pull("localhost/none:1"),
            "adopt": lambda: machine.runner.adopt(machine.launch),
            "freeze": lambda: machine.runner.freeze(ATTEMPT),
            "thaw": lambda: machine.runner.thaw(ATTEMPT),
            "signal": lambda: machine.runner.signal(ATTEMPT, "TERM"),
            "discard": lambda: machine.runner.discard(ATTEMPT),
            "sweep": lambda: machine.runner.cleanup([]),
        }
        for name, call in calls.items():
            before = time.monotonic()
            with pytest.raises(RunnerDown):
                call()
            assert time.monotonic() - before < 10, name
    finally:
        own.service.send_signal(signal.SIGCONT)
        own.remove_all(machine.name)
        own.stop_service()


def test_podmans_refusals_and_silence_raise_different_errors(machine: Machine) -> None:
    engine_ = machine.runner._engine
    assert engine_.inspect("no-such-container") is None
    engine_.remove("no-such-container")
    with pytest.raises(EngineError, match="no container with name or ID"):
        engine_.pause("no-such-container")
    with pytest.raises(EngineError, match=r"localhost/none:1"):
        engine_.pull("localhost/none:1")
    machine.start()
    [(container, attempt)] = engine_.containers()
    assert attempt == ATTEMPT
    seen = engine_.inspect(container)
    assert seen is not None
    assert (seen.attempt, seen.state) == (ATTEMPT, ContainerState.RUNNING)
