"""The resources that a container used, from the kernel's counters in either version of cgroups."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Usage:
    """The usage of a container, read after its program has ended and before its cgroup is gone.

    `limit_hits` is how often it reached its own limit, or None if that is unknown. `oom_kills` also counts processes
    that were killed because the whole machine had too little memory.
    """

    cpu_seconds: float | None = None
    peak_memory: int | None = None
    oom_kills: int = 0
    limit_hits: int | None = None


def groups_of(container: str, pid: int, path: str) -> dict[str, str]:
    """The cgroups of a container by controller, found by its process, or else by the path that its engine gives.

    In version 2 the only key is the empty string. A cgroup whose path does not contain the container's id belongs to
    another process or to the whole machine, and does not count.
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
    """The container's usage; empty if it cannot be read."""
    if "memory" in groups:
        memory, cpu = (CGROUPS / each / groups.get(each, "").lstrip("/") for each in ("memory", "cpuacct"))
        used, per_second = _read(cpu / "cpuacct.usage"), 1e9
        peak = _read(memory / "memory.max_usage_in_bytes")
        kills = _read(memory / "memory.oom_control", "oom_kill")
        limits = ("memory.failcnt", "memory.memsw.failcnt")  # without and with swap; often only one of them counts
        found = [hits for hits in (_read(memory / each) for each in limits) if hits is not None]
        hits = sum(found) if found else None
    elif "" in groups:
        group = CGROUPS / groups[""].lstrip("/")
        used, per_second = _read(group / "cpu.stat", "usage_usec"), 1e6
        peak = _read(group / "memory.peak")
        kills = _read(group / "memory.events", "oom_kill")
        hits = _read(group / "memory.events", "oom")
    else:
        return Usage()
    return Usage(None if used is None else used / per_second, peak, kills or 0, hits)


def _read(path: Path, word: str = "") -> int | None:
    """The number in a file, or the number after this word in it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = path.read_text().split()
        return int(words[words.index(word) + 1 if word else 0])
    return None
