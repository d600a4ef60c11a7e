"""The group of processes that a build's RUN instructions run in. This module uses only the standard library.

Podman starts them outside its own process group, and they survive Podman. So they are found by their control group,
which has a name that no other build has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

ROOT = "/sys/fs/cgroup"
#: Wait at most this many seconds until killed processes have left their group.
EMPTY_SECONDS = 5.0


def folders(name: str, root: str = ROOT) -> list[str]:
    """The folders of the group, one per hierarchy; empty if the group does not exist."""
    found = []
    for folder, names, _ in os.walk(root):
        if name in names:
            found.append(f"{folder}/{name}")
            names.remove(name)
    return found


def processes(name: str, root: str = ROOT) -> set[int]:
    """The processes in the group and in the groups below it."""
    found: set[int] = set()
    for top in folders(name, root):
        for folder, _, files in os.walk(top):
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs") as file:  # noqa: PTH123
                    found |= {int(line) for line in file}
    return found - {0, os.getpid()}


def limit_processes(parent: str, most: int) -> None:
    """Create the group, and let it have at most this many processes, where the kernel's files allow that."""
    for base in (f"{ROOT}/pids", ROOT):
        with contextlib.suppress(OSError):
            if parent.startswith("/") and os.path.exists(f"{base}/cgroup.procs"):  # noqa: PTH110
                os.makedirs(base + parent, exist_ok=True)  # noqa: PTH103
                with open(f"{base}{parent}/pids.max", "w") as file:  # noqa: PTH123
                    file.write(str(most))
                return


def send(name: str, number: int) -> int:
    """Send a signal to every process in the group; return how many there were."""
    found = processes(name)
    for pid in found:
        with contextlib.suppress(OSError):  # it has ended
            os.kill(pid, number)
    return len(found)


def kill(name: str) -> None:
    """Kill all processes in the group, also those that are started meanwhile."""
    for _ in _until(EMPTY_SECONDS):
        if not send(name, signal.SIGKILL):
            return


def remove(name: str) -> None:
    """Remove the empty group."""
    for _ in _until(EMPTY_SECONDS):
        for top in folders(name):
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # a process in it has not ended yet
                    os.rmdir(folder)  # noqa: PTH106
        if not folders(name):
            return


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.05)
