"""The kernel reports that a container's program is gone. Here it is tested with processes that are not containers."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from deborgen_worker.runners.containers import watch
from deborgen_worker.runners.containers.watch import Gone, wait_until_gone
from support.waiting import wait_until

Child = subprocess.Popen[bytes]


@pytest.fixture
def spawn() -> Iterator[Callable[[], Child]]:
    """Children of this process, which plays the role of their monitor."""
    made: list[Child] = []

    def run() -> Child:
        made.append(subprocess.Popen(["sleep", "1000"]))
        return made[-1]

    yield run
    for each in made:
        end(each)


def end(child: Child) -> None:
    child.kill()
    child.wait()


@pytest.fixture
def watched() -> Iterator[Callable[[int, int], Future[Gone | None]]]:
    """Starts to watch in another thread, and returns once both processes are open there."""
    with ThreadPoolExecutor() as threads:

        def begin(pid: int, monitor: int) -> Future[Gone | None]:
            before = descriptors()
            waiting = threads.submit(wait_until_gone, pid, monitor)
            wait_until(lambda: waiting.done() or descriptors() == before + 2, what="both to be watched")
            return waiting

        yield begin


def descriptors() -> int:
    """How many pidfds are open in this process."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += "pidfd" in str(each.readlink())
    return found


Watched = Callable[[int, int], Future[Gone | None]]


def test_the_end_of_each_program_is_noticed_and_no_descriptor_stays_open(
    spawn: Callable[[], Child], watched: Watched
) -> None:
    before = descriptors()
    children = [spawn(), spawn()]
    first, second = [watched(each.pid, os.getpid()) for each in children]
    end(children[0])
    assert first.result(30) is Gone.PROGRAM
    assert not second.done()
    end(children[1])
    assert second.result(30) is Gone.PROGRAM
    assert descriptors() == before


def test_a_killed_monitor_is_noticed_while_its_program_goes_on(watched: Watched) -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    program = int(shell.stdout.readline())
    try:
        waiting = watched(program, shell.pid)
        end(shell)
        assert waiting.result(30) is Gone.MONITOR
        assert Path(f"/proc/{program}").exists()
    finally:
        os.kill(program, 9)
        shell.stdout.close()


def test_a_program_that_ends_just_before_it_is_watched_is_gone(
    spawn: Callable[[], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its end would never be noticed. It happened to one short container in 800."""
    child = spawn()

    def parent_and_end(pid: int) -> int:
        parent = parent_of(pid)
        end(child)
        return parent

    parent_of = watch.parent_of
    monkeypatch.setattr(watch, "parent_of", parent_and_end)
    assert wait_until_gone(child.pid, os.getpid()) is Gone.PROGRAM


def test_a_program_that_is_not_its_monitors_child_is_not_watched(spawn: Callable[[], Child]) -> None:
    """Its pid belongs to another machine or namespace, and means another process here."""
    assert wait_until_gone(spawn().pid, 1) is None
    assert wait_until_gone(0, os.getpid()) is None
