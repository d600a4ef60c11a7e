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

    The empty name is that of version 2. The cgroup's name must have the container's id: else it is that of a process
    elsewhere, or of the whole machine.
    """
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, names, place = line.split(":", 2)
            found |= {name.removeprefix("name="): place for name in names.split(",")}
    if container in found.get("memory", found.get("", "")):
        return found
    if container in path:
        return {"memory": path, "cpuacct": path} if (CGROUPS / "memory").is_dir() else {"": path}
    return {}


def usage_of(groups: dict[str, str]) -> Usage:
    """What the kernel counted; nothing where it cannot be read."""
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
    """The number in a file, or the one behind this word in it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = path.read_text().split()
        return int(words[words.index(word) + 1 if word else 0])
    return None
