"""The group of all containers of jobs, which has the lowest weight for the processor and the disk.

A container's own weight counts only against other containers beside it. Against the programs of the machine's owner,
what counts is the weight of the group that holds all these containers.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")
GROUP = "deborgen"
SLICE = f"{GROUP}.slice"
SYSTEMCTL_SECONDS = 10.0
#: Files of a group, with the weight for each. The first file that exists is used. The weight for the processor is the
#: lowest of cgroups version 2, a hundredth of the usual one, and the same in version 1. With less, as with `cpu.idle`,
#: a container could neither be started nor be frozen while all processors are busy: both need time of its own.
CPU_WEIGHTS = {"cpu.weight": "1", "cpu.shares": "10"}
IO_WEIGHTS = {"io.bfq.weight": "1", "io.weight": "default 1", "blkio.bfq.weight": "1", "blkio.weight": "10"}


def lowest_group(info: Mapping[str, Any]) -> str:
    """Give the group the lowest weight, and return its name for Podman. Empty if this machine does not allow it.

    `info` is the answer of Podman's `info`.
    """
    host = info.get("host", {})
    rootless = bool(host.get("security", {}).get("rootless"))
    if host.get("cgroupManager") == "systemd":
        return SLICE if _lower_slice(rootless) else ""
    return f"/{GROUP}" if not rootless and _lower_folder(CGROUPS) else ""


def _lower_slice(rootless: bool) -> bool:
    """Have systemd give the slice the lowest weight until the next boot."""
    command = ["systemctl", *(["--user"] if rootless else []), "set-property", "--runtime", SLICE]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command += ["CPUWeight=1", "IOWeight=1"]
        return not subprocess.run(command, capture_output=True, timeout=SYSTEMCTL_SECONDS, check=False).returncode
    return False


def _lower_folder(root: Path) -> bool:
    """Give the group the lowest weight through the kernel's files, in either version of cgroups."""
    if (root / "cgroup.subtree_control").exists():
        cpu = io = root
        for controller in ("+cpu", "+io"):
            _write(root / "cgroup.subtree_control", controller)
    else:
        cpu, io = root / "cpu", root / "blkio"
    _lower(io / GROUP, IO_WEIGHTS)  # not every kernel can weigh the use of disks
    return _lower(cpu / GROUP, CPU_WEIGHTS)


def _lower(folder: Path, weights: Mapping[str, str]) -> bool:
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
    return any((folder / name).exists() and _write(folder / name, weight) for name, weight in weights.items())


def _write(path: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        path.write_text(text)
        return True
    return False
