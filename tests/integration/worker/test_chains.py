"""Chains of the real supervisor: programs that follow each other without a message from the worker."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deborgen_worker import leases
from deborgen_worker.attempts import Exit, Standing
from deborgen_worker.runners.protocol import ANY_TIME, Launch
from deborgen_worker.runners.subprocess import SubprocessRunner
from deborgen_worker.runners.supervision import Supervision
from deborgen_worker.sockets import short_path
from deborgen_worker.steps import AttemptEvent, Began, Exited, Returned
from support.coordinator import children_of
from support.waiting import wait_until

UNTIL = "import pathlib, time\nwhile not pathlib.Path({gate!r}).exists(): time.sleep(0.01)"


class SupervisedRunner:
    """A runner with its supervisor, and the events that it reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[AttemptEvent] = []
        (folder / "state" / "attempts").mkdir(parents=True, exist_ok=True)
        self.runner = SubprocessRunner(Supervision(folder / "state"), self.events.extend)
        self.runner._chains.seconds, self.runner._chains.join_within = 1000.0, 1000.0

    def start(self, first: Launch, *following: Launch, start_by: float = ANY_TIME) -> None:
        """Start the first, and let the others follow it."""
        self.runner.start_all([first])
        self.runner.follow([dataclasses.replace(each, start_by=start_by) for each in following])

    def launch(self, name: str, code: str) -> Launch:
        folder = self.of(name)
        (folder / "work").mkdir(parents=True)
        argv = (sys.executable, "-I", "-S", "-c", code)
        env = {"DEBORGEN_RESULT": str(folder / "work" / ".deborgen" / "result.json")}
        return Launch(name, argv, env, folder, folder / "work", timeout_seconds=60.0)

    def of(self, name: str) -> Path:
        return self.folder / "state" / "attempts" / name

    def until(self, name: str, gate: str) -> Launch:
        """A program that runs until there is a file of this name."""
        return self.launch(name, UNTIL.format(gate=str(self.folder / gate)))

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def ended(self) -> list[str]:
        return [each.name for each in self.events if not isinstance(each, Began)]

    def exit_of(self, name: str) -> Exit:
        return next(each.exit for each in self.events if isinstance(each, Exited) and each.name == name)

    def came_back(self, name: str) -> bool:
        return Returned(name) in self.events

    def begun(self, name: str) -> bool:
        return (self.of(name) / "output").exists()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[SupervisedRunner]:
    found = SupervisedRunner(tmp_path)
    yield found
    found.runner.cleanup(frozenset())
    found.runner.close()


def test_the_next_program_of_a_chain_begins_only_when_the_one_before_has_ended(supervised: SupervisedRunner) -> None:
    supervised.start(supervised.until("a", "gate"), supervised.launch("b", "print('b')"))
    supervised.start(supervised.launch("other", "print('other')"))
    wait_until(lambda: supervised.ended() == ["other"])
    assert not supervised.begun("b")
    supervised.open("gate")
    wait_until(lambda: supervised.ended() == ["other", "a", "b"])
    assert [supervised.exit_of(name).code for name in ("other", "a", "b")] == [0, 0, 0]
    assert supervised.events.index(Began("b")) == supervised.events.index(Exited("a", supervised.exit_of("a"))) + 1
    assert (supervised.of("b") / "output").read_bytes() == b"b\n"


def test_the_deadline_counts_from_the_start_of_a_program(supervised: SupervisedRunner) -> None:
    sent = time.time()
    program = "import os; print(os.environ['DEBORGEN_DEADLINE'])"
    supervised.start(supervised.until("a", "gate"), supervised.launch("b", program))
    wait_until(lambda: time.time() > sent + 1.1)
    opened = time.time()
    supervised.open("gate")
    wait_until(lambda: supervised.ended() == ["a", "b"])
    assert int((supervised.of("b") / "output").read_bytes()) >= int(opened + 60.0)


def test_a_program_that_cannot_be_executed_does_not_hold_up_its_chain(supervised: SupervisedRunner) -> None:
    missing = Launch("b", ("/no/such/program",), {}, supervised.of("b"), supervised.folder, timeout_seconds=60.0)
    supervised.of("b").mkdir()
    supervised.start(supervised.until("a", "gate"), missing, supervised.launch("c", "print('c')"))
    supervised.open("gate")
    wait_until(lambda: sorted(supervised.ended()) == ["a", "b", "c"])
    assert supervised.exit_of("b").code == 127
    assert supervised.exit_of("c").code == 0


def test_a_waiting_program_can_be_recalled_and_submitted_again_but_a_running_one_cannot(
    supervised: SupervisedRunner,
) -> None:
    waiting = supervised.launch("b", "print('b')")
    supervised.start(supervised.until("a", "gate"), waiting)
    supervised.runner.recall("a")
    supervised.runner.recall("b")
    wait_until(lambda: supervised.ended() == ["b"])
    assert supervised.came_back("b")
    assert not supervised.begun("b")
    supervised.events.clear()
    supervised.runner.start(waiting)
    wait_until(lambda: supervised.ended() == ["b"])
    assert supervised.exit_of("b").code == 0
    supervised.open("gate")
    wait_until(lambda: supervised.ended() == ["b", "a"])


def test_a_waiting_program_that_is_ended_never_begins(supervised: SupervisedRunner) -> None:
    supervised.start(supervised.until("a", "gate"), supervised.launch("b", "print('b')"))
    supervised.runner.signal("b", "TERM")
    wait_until(lambda: supervised.ended() == ["b"])
    assert supervised.exit_of("b").error
    supervised.open("gate")
    wait_until(lambda: supervised.ended() == ["b", "a"])
    assert not supervised.begun("b")


def test_a_waiting_program_whose_lease_may_have_expired_does_not_begin(supervised: SupervisedRunner) -> None:
    """Seen to fail when the supervisor ignores `start_by`: the program begins when the one before it ends."""
    moment = leases.clock() + 0.5
    supervised.start(supervised.until("a", "gate"), supervised.launch("b", "print('b')"), start_by=moment)
    wait_until(lambda: leases.clock() > moment)
    supervised.open("gate")
    wait_until(lambda: sorted(supervised.ended()) == ["a", "b"])
    assert supervised.came_back("b")
    assert not supervised.begun("b")


def test_the_next_worker_adopts_running_programs_and_starts_the_waiting_ones_itself(
    supervised: SupervisedRunner,
) -> None:
    """Seen to fail when a waiting program counts as running: it may wait for longer than its time limit."""
    running, waiting = supervised.until("a", "gate"), supervised.launch("b", "print('b')")
    supervised.start(running, waiting)
    supervised.runner.close()
    later = supervised.runner = SubprocessRunner(Supervision(supervised.folder / "state"), supervised.events.extend)
    assert later.adopt(running).standing is Standing.RUNNING
    assert later.adopt(waiting).standing is Standing.NEVER_STARTED
    supervised.open("gate")
    wait_until(lambda: supervised.ended() == ["a"])
    assert not supervised.begun("b")


def test_leftovers_of_a_killed_supervisor_have_ended_before_their_end_is_reported(supervised: SupervisedRunner) -> None:
    """This holds even if the worker can still connect to the supervisor that is being killed, which never answers."""
    alive: list[bool] = []
    supervised.runner._report = lambda events: alive.extend(runs(pid) for _ in events)
    supervised.runner.start(supervised.until("a", "gate"))
    wait_until(lambda: children_of(supervisor_of(supervised)))
    pid = children_of(supervisor_of(supervised))[0]
    place = supervised.folder / "state" / "supervisor.sock"
    place.unlink()
    elsewhere = {"DEBORGEN_ATTEMPT_ID": "a", "DEBORGEN_RESULT": "/elsewhere/attempts/a/result.json"}
    neighbour = subprocess.Popen(["sleep", "60"], env=elsewhere | {"PATH": os.environ["PATH"]})
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dying:
            with short_path(place) as path:
                dying.bind(path)
            dying.listen()
            os.kill(supervisor_of(supervised), signal.SIGKILL)
            line, _ = dying.accept()
            line.close()
        wait_until(lambda: bool(alive))
        assert alive == [False]
        assert supervised.runner.check() == ""
        assert neighbour.poll() is None, "it is another worker's attempt of the same name"
    finally:
        neighbour.kill()
        neighbour.wait()


def supervisor_of(supervised: SupervisedRunner) -> int:
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                words = (each / "cmdline").read_bytes().split(b"\0")
                if (
                    str(supervised.folder / "state").encode() in words
                    and b"zombie" not in (each / "status").read_bytes()
                ):
                    return int(each.name)
    raise AssertionError("there is no supervisor")


def runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_supervisor_that_could_not_be_replaced_at_once_is_replaced_later(supervised: SupervisedRunner) -> None:
    runner, supervision = supervised.runner, supervised.runner._supervision
    pid = supervisor_of(supervised)
    connect, supervision.open = supervision.open, lambda: None  # type: ignore[method-assign]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: supervision._socket is None)
    assert runner.check()
    supervision.open = connect  # type: ignore[method-assign]
    assert runner.check() == ""
