"""The resources that a container used, from the kernel's counters in either version of cgroups."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Usage:
    """Read after a container's program has ended and before its cgroup is gone."""

    cpu_seconds: float | None = None
    peak_memory: int | None = None
    oom_kills: int = 0


def groups_of(container: str, pid: int, path: str) -> dict[str, str]:
    """The cgroups of a container by controller, found by its process or else by the path that its engine gives.

    In version 2 the only key is the empty string. A cgroup counts only if its path contains the container's id:
    otherwise it belongs to another process, or to the whole machine.
    """
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, names, path_of_group = line.split(":", 2)
            found |= {name.removeprefix("name="): path_of_group for name in names.split(",")}
    if container in found.get("memory", found.get("", "")):
        return found
    if container in path:
        return {"memory": path, "cpuacct": path} if (CGROUPS / "memory").is_dir() else {"": path}
    return {}


def usage_of(groups: dict[str, str]) -> Usage:
    """What the container used; empty if it cannot be read."""
    if "memory" in groups:
        memory, cpu = (CGROUPS / each / groups.get(each, "").lstrip("/") for each in ("memory", "cpuacct"))
        used, parts = _read(cpu / "cpuacct.usage"), 1e9
        peak = _read(memory / "memory.max_usage_in_bytes")
        kills = _read(memory / "memory.oom_control", "oom_kill")
    elif "" in groups:
        group = CGROUPS / groups[""].lstrip("/")
        used, parts = _read(group / "cpu.stat", "usage_usec"), 1e6
        peak = _read(group / "memory.peak")
        kills = _read(group / "memory.events", "oom_kill")
    else:
        return Usage()
    return Usage(None if used is None else used / parts, peak, kills or 0)


def _read(path: Path, word: str = "") -> int | None:
    """The number in a file, or the number after this word in it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = path.read_text().split()
        return int(words[words.index(word) + 1 if word else 0])
    return None
