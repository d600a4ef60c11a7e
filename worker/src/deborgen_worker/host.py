"""What this machine is: its boot, its processors, its memory, its GPUs."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path

Label = str | bool | int | float


def boot_id() -> str:
    """The kernel's id of this boot. A test may give another one, to stand for a reboot."""
    return os.environ.get("DEBORGEN_WORKER_BOOT_ID") or Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def processors() -> int:
    return len(os.sched_getaffinity(0))


def memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@functools.cache
def gpus() -> tuple[tuple[str, str], ...]:
    """The GPUs that nvidia-smi names: the name that a container takes them by, and the model."""
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
    """What placement and people may want to know."""
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
    return ""
