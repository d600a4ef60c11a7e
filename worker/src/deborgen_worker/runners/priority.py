"""Jobs give way to the programs of the machine's owner. This module uses only the standard library."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
import time

#: When the machine's memory runs short, the kernel kills a job before a program of the owner.
OOM_SCORE = 500
LOWEST_NICE = 19
#: The number of the system call `ioprio_set`, for which the C library has no function, and its arguments.
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine, 0) if sys.platform == "linux" else 0
LIBC = ctypes.CDLL(None)
OF_PROCESS, IDLE_CLASS = 1, 3 << 13
#: The kernel lets ordinary users change the weight of a session only once in a tenth of a second.
SESSION_SECONDS = 2.0


def give_way(pid: int) -> None:
    """Let a process, and everything that it has started already, run only while no program of the owner wants to.

    The same goes for the disk. On processors for which `IOPRIO_SET` is not known here, the kernel derives the priority
    for the disk from SCHED_IDLE.
    """
    with contextlib.suppress(OSError):  # it has ended
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        else:  # macOS
            os.setpriority(os.PRIO_PROCESS, pid, LOWEST_NICE)
    if IOPRIO_SET:
        LIBC.syscall(IOPRIO_SET, OF_PROCESS, pid, IDLE_CLASS)
    with contextlib.suppress(OSError):
        write(f"/proc/{pid}/oom_score_adj", OOM_SCORE)
    for child in children(pid):
        give_way(child)


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123
        return [int(word) for word in file.read().split()]
    return []


def lower_session(pid: int) -> None:
    """Give the session of a process the lowest weight.

    Where `sched_autogroup_enabled` is set, the kernel first shares the processor among sessions, whatever the priority
    of their processes. So SCHED_IDLE alone would leave half of a core to a job.
    """
    end = time.monotonic() + SESSION_SECONDS
    while time.monotonic() < end:
        try:
            return write(f"/proc/{pid}/autogroup", LOWEST_NICE)
        except OSError as error:  # a kernel without such groups, or not Linux
            if error.errno != errno.EAGAIN:
                return None
        time.sleep(0.02)
    return None


def machine_oom_kills() -> int:
    """How many processes the kernel has killed on this machine because memory ran out; 0 if it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/vmstat", "rb") as file:  # noqa: PTH123
        return int(file.read().rpartition(b"\noom_kill ")[2].split()[0])
    return 0


def write(path: str, number: int) -> None:
    with open(path, "wb", buffering=0) as file:  # noqa: PTH123
        file.write(b"%d" % number)
