"""Whether a container's program is gone is told by the kernel: here with processes that are no containers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deborgen_worker.runners.podman import watch
from deborgen_worker.runners.podman.watch import Watch
from support.waiting import wait_until


@pytest.fixture
def spawn() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Children of this process, which stands for their conmon."""
    made: list[subprocess.Popen[bytes]] = []

    def run() -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(["sleep", "1000"]))
        return made[-1]

    yield run
    for each in made:
        end(each)


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def test_the_end_of_a_program_is_told_once(spawn: Callable[[], subprocess.Popen[bytes]]) -> None:
    told: list[tuple[str, bool]] = []
    each = Watch(lambda attempt, conmon: told.append((attempt, conmon)))
    first, second = spawn(), spawn()
    assert each.add("first", first.pid, os.getpid())
    assert each.add("second", second.pid, os.getpid())
    end(first)
    wait_until(lambda: told)
    each.drop("first")
    end(second)
    wait_until(lambda: len(told) > 1)
    assert told == [("first", False), ("second", False)]


def test_a_program_that_ends_just_before_it_is_watched_is_not_called_watched(
    spawn: Callable[[], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would ever tell of its end. It happened to one short container in 800."""
    child = spawn()

    def parent_and_end(pid: int) -> int:
        parent = parent_of(pid)
        end(child)
        return parent

    parent_of = watch.parent_of
    monkeypatch.setattr(watch, "parent_of", parent_and_end)
    assert not Watch(lambda _attempt, _conmon: None).add("1.1/1", child.pid, os.getpid())


def test_a_system_that_does_not_tell_of_an_end_is_not_waited_for(
    spawn: Callable[[], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman is asked then."""
    monkeypatch.delattr(os, "pidfd_open")
    assert not Watch(lambda _attempt, _conmon: None).add("1.1/1", spawn().pid, os.getpid())


def test_the_descriptor_of_a_dropped_one_is_nobody_elses_while_the_ready_ones_are_looked_at(
    spawn: Callable[[], subprocess.Popen[bytes]],
) -> None:
    """Else the end of a dropped one would be told as that of a container which has just got its number."""
    told: list[tuple[str, bool]] = []
    looking, go_on = threading.Event(), threading.Event()

    def on_gone(attempt: str, conmon: bool) -> None:
        told.append((attempt, conmon))
        looking.set()
        go_on.wait(30)

    each = Watch(on_gone)
    first, dropped = spawn(), spawn()
    before = set(descriptors())
    assert each.add("dropped", dropped.pid, os.getpid())
    its_own = set(descriptors()) - before
    assert each.add("first", first.pid, os.getpid())
    end(first)
    assert looking.wait(30)  # from here on the watching thread looks at what is ready
    each.drop("dropped")
    assert its_own <= set(descriptors())
    end(dropped)
    go_on.set()
    wait_until(lambda: not its_own & set(descriptors()))
    assert told == [("first", False)]


def descriptors() -> list[int]:
    """The processes' descriptors that are open here."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "pidfd" in str(each.readlink()):
                found.append(int(each.name))
    return found
