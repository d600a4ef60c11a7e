"""Lanes of the real supervisor: programs that follow each other without a word from the worker."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deborgen_worker import leases
from deborgen_worker.attempts import Exit, Standing
from deborgen_worker.runners.protocol import ANY_TIME, Launch
from deborgen_worker.runners.subprocess import SubprocessRunner
from deborgen_worker.runners.supervision import Supervision
from deborgen_worker.steps import AttemptEvent, Began, Exited, Returned
from support.waiting import wait_until

UNTIL = "import pathlib, time\nwhile not pathlib.Path({gate!r}).exists(): time.sleep(0.01)"


class Lanes:
    """A runner with its supervisor, and what it told."""

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
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    found = Lanes(tmp_path)
    yield found
    found.runner.cleanup(frozenset())
    found.runner.close()


def test_the_next_in_a_lane_begins_when_the_one_before_has_ended_and_not_before(lanes: Lanes) -> None:
    lanes.start(lanes.until("a", "gate"), lanes.launch("b", "print('b')"))
    lanes.start(lanes.launch("other", "print('other')"))
    wait_until(lambda: lanes.ended() == ["other"])
    assert not lanes.begun("b")
    lanes.open("gate")
    wait_until(lambda: lanes.ended() == ["other", "a", "b"])
    assert [lanes.exit_of(name).code for name in ("other", "a", "b")] == [0, 0, 0]
    assert lanes.events.index(Began("b")) == lanes.events.index(Exited("a", lanes.exit_of("a"))) + 1
    assert (lanes.of("b") / "output").read_bytes() == b"b\n"


def test_one_that_cannot_be_executed_does_not_hold_up_its_lane(lanes: Lanes) -> None:
    missing = Launch("b", ("/no/such/program",), {}, lanes.of("b"), lanes.folder, timeout_seconds=60.0)
    lanes.of("b").mkdir()
    lanes.start(lanes.until("a", "gate"), missing, lanes.launch("c", "print('c')"))
    lanes.open("gate")
    wait_until(lambda: sorted(lanes.ended()) == ["a", "b", "c"])
    assert lanes.exit_of("b").code == 127
    assert lanes.exit_of("c").code == 0


def test_what_waits_can_be_called_back_and_asked_for_again_and_what_runs_cannot(lanes: Lanes) -> None:
    waiting = lanes.launch("b", "print('b')")
    lanes.start(lanes.until("a", "gate"), waiting)
    lanes.runner.recall("a")
    lanes.runner.recall("b")
    wait_until(lambda: lanes.ended() == ["b"])
    assert lanes.came_back("b")
    assert not lanes.begun("b")
    lanes.events.clear()
    lanes.runner.start(waiting)
    wait_until(lambda: lanes.ended() == ["b"])
    assert lanes.exit_of("b").code == 0
    lanes.open("gate")
    wait_until(lambda: lanes.ended() == ["b", "a"])


def test_what_waits_and_is_ended_never_begins(lanes: Lanes) -> None:
    lanes.start(lanes.until("a", "gate"), lanes.launch("b", "print('b')"))
    lanes.runner.signal("b", "TERM")
    wait_until(lambda: lanes.ended() == ["b"])
    assert lanes.exit_of("b").error
    lanes.open("gate")
    wait_until(lambda: lanes.ended() == ["b", "a"])
    assert not lanes.begun("b")


def test_what_has_waited_so_long_that_its_lease_may_be_over_does_not_begin(lanes: Lanes) -> None:
    """Seen to fail when the supervisor does not look at `start_by`: the program begins when the one before it ends."""
    moment = leases.clock() + 0.5
    lanes.start(lanes.until("a", "gate"), lanes.launch("b", "print('b')"), start_by=moment)
    wait_until(lambda: leases.clock() > moment)
    lanes.open("gate")
    wait_until(lambda: sorted(lanes.ended()) == ["a", "b"])
    assert lanes.came_back("b")
    assert not lanes.begun("b")


def test_the_next_worker_finds_what_runs_and_starts_what_waits_itself(lanes: Lanes) -> None:
    """Seen to fail when what waits is taken for running: it may wait for longer than its time limit."""
    running, waiting = lanes.until("a", "gate"), lanes.launch("b", "print('b')")
    lanes.start(running, waiting)
    lanes.runner.close()
    later = lanes.runner = SubprocessRunner(Supervision(lanes.folder / "state"), lanes.events.extend)
    assert later.adopt(running).standing is Standing.RUNNING
    assert later.adopt(waiting).standing is Standing.NEVER_STARTED
    lanes.open("gate")
    wait_until(lambda: lanes.ended() == ["a"])
    assert not lanes.begun("b")


def test_what_a_killed_supervisor_left_running_has_ended_before_its_end_is_told(lanes: Lanes) -> None:
    """Also when the worker can still connect to the one that is being killed, which then says nothing any more."""
    alive: list[bool] = []
    lanes.runner._report = lambda events: alive.extend(runs(pid) for _ in events)
    lanes.runner.start(lanes.until("a", "gate"))
    wait_until(lambda: children_of(supervisor_of(lanes)))
    pid = children_of(supervisor_of(lanes))[0]
    place = lanes.folder / "state" / "supervisor.sock"
    place.unlink()
    elsewhere = {"DEBORGEN_ATTEMPT_ID": "a", "DEBORGEN_RESULT": "/elsewhere/attempts/a/result.json"}
    neighbour = subprocess.Popen(["sleep", "60"], env=elsewhere | {"PATH": os.environ["PATH"]})
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dying:
            dying.bind(str(place))
            dying.listen()
            os.kill(supervisor_of(lanes), signal.SIGKILL)
            line, _ = dying.accept()
            line.close()
        wait_until(lambda: bool(alive))
        assert alive == [False]
        assert lanes.runner.check() == ""
        assert neighbour.poll() is None, "it is another worker's attempt of the same name"
    finally:
        neighbour.kill()
        neighbour.wait()


def supervisor_of(lanes: Lanes) -> int:
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                words = (each / "cmdline").read_bytes().split(b"\0")
                if str(lanes.folder / "state").encode() in words and b"zombie" not in (each / "status").read_bytes():
                    return int(each.name)
    raise AssertionError("there is no supervisor")


def runs(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_supervisor_that_could_not_be_replaced_at_once_is_replaced_later(lanes: Lanes) -> None:
    runner, supervision = lanes.runner, lanes.runner._supervision
    pid = supervisor_of(lanes)
    connect, supervision.open = supervision.open, lambda: None  # type: ignore[method-assign]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: supervision._socket is None)
    assert runner.check()
    supervision.open = connect  # type: ignore[method-assign]
    assert runner.check() == ""
