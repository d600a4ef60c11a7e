"""Lanes of the real supervisor: programs that follow each other without a word from the worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deborgen_worker.runners.protocol import Exit, Launch, Standing
from deborgen_worker.runners.subprocess import SubprocessRunner
from support.worker import wait_until

UNTIL = "import pathlib, time\nwhile not pathlib.Path({gate!r}).exists(): time.sleep(0.01)"


class Lanes:
    """A runner with its supervisor, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ends: list[tuple[str, Exit]] = []
        (folder / "state").mkdir(exist_ok=True)
        self.runner = SubprocessRunner(folder / "state", self.ends.extend)

    def launch(self, name: str, code: str) -> Launch:
        folder = self.folder / name
        (folder / "work").mkdir(parents=True)
        argv = (sys.executable, "-I", "-S", "-c", code)
        return Launch(name, argv, {}, folder, folder / "work", timeout_seconds=60.0)

    def until(self, name: str, gate: str) -> Launch:
        """A program that runs until there is a file of this name."""
        return self.launch(name, UNTIL.format(gate=str(self.folder / gate)))

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def ended(self) -> list[str]:
        return [name for name, _ in self.ends]

    def begun(self, name: str) -> bool:
        return (self.folder / name / "output").exists()


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    found = Lanes(tmp_path)
    yield found
    found.runner.sweep(frozenset())
    found.runner.close()


def test_the_next_in_a_lane_begins_when_the_one_before_has_ended_and_not_before(lanes: Lanes) -> None:
    lanes.runner.start_in_lanes([(lanes.until("a", "gate"), "a"), (lanes.launch("b", "print('b')"), "a")])
    lanes.runner.start_in_lanes([(lanes.launch("other", "print('other')"), "other")])
    wait_until(lambda: lanes.ended() == ["other"])
    assert not lanes.begun("b")
    lanes.open("gate")
    wait_until(lambda: lanes.ended() == ["other", "a", "b"])
    assert [exit_.code for _, exit_ in lanes.ends] == [0, 0, 0]
    assert (lanes.folder / "b" / "output").read_bytes() == b"b\n"


def test_one_that_cannot_be_executed_does_not_hold_up_its_lane(lanes: Lanes) -> None:
    missing = Launch("b", ("/no/such/program",), {}, lanes.folder / "b", lanes.folder, timeout_seconds=60.0)
    (lanes.folder / "b").mkdir()
    lanes.runner.start_in_lanes(
        [(lanes.until("a", "gate"), "a"), (missing, "a"), (lanes.launch("c", "print('c')"), "a")]
    )
    lanes.open("gate")
    wait_until(lambda: sorted(lanes.ended()) == ["a", "b", "c"])
    assert dict(lanes.ends)["b"].code == 127
    assert dict(lanes.ends)["c"].code == 0


def test_what_waits_can_be_called_back_and_asked_for_again_and_what_runs_cannot(lanes: Lanes) -> None:
    waiting = lanes.launch("b", "print('b')")
    lanes.runner.start_in_lanes([(lanes.until("a", "gate"), "a"), (waiting, "a")])
    lanes.runner.recall("a")
    lanes.runner.recall("b")
    wait_until(lambda: lanes.ended() == ["b"])
    assert dict(lanes.ends)["b"].recalled
    assert not lanes.begun("b")
    lanes.ends.clear()
    lanes.runner.start(waiting)
    wait_until(lambda: lanes.ended() == ["b"])
    assert dict(lanes.ends)["b"].code == 0
    lanes.open("gate")
    wait_until(lambda: lanes.ended() == ["b", "a"])


def test_what_waits_and_is_ended_never_begins(lanes: Lanes) -> None:
    lanes.runner.start_in_lanes([(lanes.until("a", "gate"), "a"), (lanes.launch("b", "print('b')"), "a")])
    lanes.runner.signal("b", "TERM")
    wait_until(lambda: lanes.ended() == ["b"])
    assert dict(lanes.ends)["b"].error
    lanes.open("gate")
    wait_until(lambda: lanes.ended() == ["b", "a"])
    assert not lanes.begun("b")


def test_what_has_waited_so_long_that_its_lease_may_be_over_does_not_begin(lanes: Lanes) -> None:
    """Seen to fail without the supervisor's `not_after`: the program begins when the one before it ends."""
    lanes.runner.start_in_lanes([(lanes.launch("a", "import time; time.sleep(2.3)"), "a")])
    lanes.runner.start_in_lanes([(lanes.launch("b", "print('b')"), "a")])
    wait_until(lambda: sorted(lanes.ended()) == ["a", "b"])
    assert dict(lanes.ends)["b"].recalled
    assert not lanes.begun("b")


def test_the_next_worker_finds_what_waits_as_it_finds_what_runs(lanes: Lanes) -> None:
    running, waiting = lanes.until("a", "gate"), lanes.launch("b", "print('b')")
    lanes.runner.start_in_lanes([(running, "a"), (waiting, "a")])
    lanes.runner.close()
    later = lanes.runner = SubprocessRunner(lanes.folder / "state", lanes.ends.extend)
    assert later.adopt(running) is Standing.RUNNING
    assert later.adopt(waiting) is Standing.RUNNING
    lanes.open("gate")
    wait_until(lambda: lanes.ended() == ["a", "b"])
