"""What the kernel counted for a container, in either version of cgroups."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Usage:
    """Read when a container's program is gone and its cgroup is not yet."""

    cpu_seconds: float | None = None
    peak_memory: int | None = None
    oom_kills: int = 0


def groups_of(container: str, pid: int, path: str) -> dict[str, str]:
    """The cgroups of a container by controller, by its process or else by the path that its engine gives.

    The cgroup's name must have the container's id: else it is that of a process elsewhere, or of the whole machine.
    """
    found = _cgroups_of(pid)
    if container in found.get("memory", found.get("", "")):
        return found
    if container in path:
        return {"memory": path, "cpuacct": path} if (CGROUPS / "memory").is_dir() else {"": path}
    return {}


def _cgroups_of(pid: int) -> dict[str, str]:
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
