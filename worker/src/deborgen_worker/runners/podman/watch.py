"""Notices at once when a container's program is gone, without asking Podman again and again.

The kernel tells by a pidfd. Two processes are watched: the container's first one, whose end is the end of the job, and
conmon, without which nobody would ever learn the exit code.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Usage:
    """What the kernel counted for a container. Read when its program is gone and its cgroup is not yet."""

    cpu_seconds: float | None = None
    peak_memory: int | None = None
    oom_kills: int = 0


class Watch:
    """One thread for all containers. `on_gone(attempt, conmon)` is called once for each, from that thread."""

    def __init__(self, on_gone: Callable[[str, bool], None]) -> None:
        self._on_gone = on_gone
        self._selector = selectors.DefaultSelector()
        self._by_fd: dict[int, tuple[str, bool]] = {}
        self._dropped: list[int] = []
        self._lock = threading.Lock()
        self._woken, self._waker = os.pipe()
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        threading.Thread(target=self._run, name="containers", daemon=True).start()

    def add(self, attempt: str, pid: int, conmon: int) -> bool:
        """Watch it. False if there is nothing to watch: its program is gone already, or runs where it cannot be seen
        (the service is in another machine or namespace). Whoever adds it must then ask Podman."""
        if pid <= 0 or parent_of(pid) != conmon:
            return False
        with self._lock:
            if not self._open(pid, (attempt, False)):
                return False
            self._open(conmon, (attempt, True))
        os.write(self._waker, b"x")
        return True

    def _open(self, pid: int, what: tuple[str, bool]) -> bool:
        if not hasattr(os, "pidfd_open"):  # Linux only
            return False
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        self._by_fd[fd] = what
        self._selector.register(fd, selectors.EVENT_READ)
        return True

    def drop(self, attempt: str) -> None:
        """Watch it no longer. Its descriptors are closed by the thread that watches, and by no other: while it looks
        at what is ready, the number of one that was closed could already be that of another container."""
        with self._lock:
            fds = [fd for fd, (name, _) in self._by_fd.items() if name == attempt]
            for fd in fds:
                del self._by_fd[fd]
            self._dropped += fds
        if fds:
            os.write(self._waker, b"x")

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                fd = key.fd
                if fd == self._woken:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._woken, 4096)
                    continue
                with self._lock:
                    found = self._by_fd.pop(fd, None)
                    if found is not None:
                        self._close(fd)
                if found is not None:
                    self._on_gone(*found)
            with self._lock:
                while self._dropped:
                    self._close(self._dropped.pop())

    def _close(self, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)


def parent_of(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).ppid()
    return -1


def cgroups_of(pid: int) -> dict[str, str]:
    """The cgroup of a process for each controller; the empty name is version 2's."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            for name in names.split(","):
                found[name.removeprefix("name=")] = path
    return found


def usage_of(groups: dict[str, str]) -> Usage:
    """What the kernel counted, in either version of cgroups; nothing where it cannot be read."""
    if "memory" in groups:
        memory = CGROUPS / "memory" / groups["memory"].lstrip("/")
        control = _pairs(memory / "memory.oom_control")
        nanoseconds = _number(CGROUPS / "cpuacct" / groups.get("cpuacct", "").lstrip("/") / "cpuacct.usage")
        return Usage(
            cpu_seconds=None if nanoseconds is None else nanoseconds / 1e9,
            peak_memory=_number(memory / "memory.max_usage_in_bytes"),
            oom_kills=control.get("oom_kill", 0),
        )
    if "" in groups:
        group = CGROUPS / groups[""].lstrip("/")
        microseconds = _pairs(group / "cpu.stat").get("usage_usec")
        return Usage(
            cpu_seconds=None if microseconds is None else microseconds / 1e6,
            peak_memory=_number(group / "memory.peak"),
            oom_kills=_pairs(group / "memory.events").get("oom_kill", 0),
        )
    return Usage()


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _pairs(path: Path) -> dict[str, int]:
    found = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if value.strip().isdigit():
                found[name] = int(value)
    return found
