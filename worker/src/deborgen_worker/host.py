"""Facts about this machine: its boot id, processors, memory and GPUs, and what its system cannot do."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import resource
import shutil
import subprocess
import time
from pathlib import Path

import psutil

Label = str | bool | int | float

#: Whether the system can limit the memory of a plain process. Only Linux can, and only there does Python have
#: `prlimit`.
LIMITS_MEMORY = hasattr(resource, "prlimit")
#: Count this user's processes at most once in this many seconds, because counting takes milliseconds.
COUNT_SECONDS = 1.0


def missing_features() -> list[str]:
    """What Linux can do and this system cannot, in words for the owner."""
    library = ctypes.CDLL(None)
    adopts = hasattr(library, "prctl")
    gaps = {
        "the memory of a plain process is not limited, and it may raise its other limits": LIMITS_MEMORY,
        "a plain process keeps running if it leaves its job's session, or if its supervisor is killed": adopts,
        "the end of a container is noticed up to half a second late": hasattr(os, "pidfd_open"),
        "a very long log keeps its disk space until its job has ended": hasattr(library, "fallocate"),
    }
    return [gap for gap, possible in gaps.items() if not possible]


def boot_id() -> str:
    """The kernel's id of this boot or, if the kernel has none, the time of the boot.

    A step of the clock may change that time. Running attempts are then given up and ended, as after a reboot. A test
    may set another id to simulate a reboot.
    """
    if simulated := os.environ.get("DEBORGEN_WORKER_BOOT_ID"):
        return simulated
    with contextlib.suppress(FileNotFoundError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{psutil.boot_time():.0f}"


def processors() -> int:
    """The number of processors that this process may use; all processors if the system has no affinity."""
    own = psutil.Process()
    return len(own.cpu_affinity() or ()) if hasattr(own, "cpu_affinity") else psutil.cpu_count() or 1


def memory() -> int:
    return psutil.virtual_memory().total


def own_processes() -> int:
    """How many processes this user has. The count is at most a second old."""
    return _own_processes(int(time.monotonic() / COUNT_SECONDS))


@functools.lru_cache(maxsize=1)
def _own_processes(_moment: int) -> int:
    owners = (process.info["uids"] for process in psutil.process_iter(["uids"]))
    return sum(owner is not None and owner.effective == os.geteuid() for owner in owners)


@functools.cache
def gpus() -> tuple[tuple[str, str], ...]:
    """The GPUs that nvidia-smi lists: for each, its device name for containers, and its model."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [program, "--query-gpu=index,name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
        rows = [line.partition(",") for line in done.stdout.splitlines() if line.strip()]
        return tuple((f"nvidia.com/gpu={index.strip()}", name.strip()) for index, _, name in rows)
    return ()


def labels() -> dict[str, Label]:
    """Labels for placement and for people."""
    system = platform.system().lower()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    found: dict[str, Label] = {
        "os": system, "arch": arch, "kernel": platform.release(), "cores": processors(),
        "memory": f"{memory() / (1 << 30):.1f}GiB", "rootless": os.geteuid() != 0,
    }  # fmt: skip
    if model := cpu_model():
        found["cpu"] = model[:200]
    if gpus():
        found["gpu"] = gpus()[0][1][:200]
        found["gpus"] = len(gpus())
        found["gpu.cdi"] = any(
            Path(each).is_dir() and any(Path(each).iterdir()) for each in ("/etc/cdi", "/var/run/cdi")
        )
    return found


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    return platform.processor()
