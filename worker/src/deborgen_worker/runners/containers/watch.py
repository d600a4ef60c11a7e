"""Notices at once when a container's program is gone, without asking its engine again and again.

The kernel tells by a pidfd. Two processes are watched: the container's first one, whose end is the end of the job, and
its monitor (Podman's is conmon), without which nobody would ever learn the exit code.
"""

from __future__ import annotations

import contextlib
import os
import select
from enum import Enum, auto

import psutil


class Gone(Enum):
    PROGRAM = auto()
    #: The program goes on without it.
    MONITOR = auto()


def wait_until_gone(pid: int, monitor: int) -> Gone | None:
    """Which of the two is gone first. None at once if there is nothing to watch: the program has ended, or it runs
    where it cannot be seen (the engine is in another machine or namespace). The caller must then ask the engine."""
    if pid <= 0 or parent_of(pid) != monitor:
        return None
    poll, opened = select.poll(), []
    try:
        for each in (pid, monitor):
            opened.append(os.pidfd_open(each))
            poll.register(opened[-1], select.POLLIN)
        return Gone.PROGRAM if opened[0] in dict(poll.poll()) else Gone.MONITOR
    except ProcessLookupError:
        return Gone.PROGRAM  # just now: the engine will soon say how it ended, or never
    except OSError:
        return None
    finally:
        for each in opened:
            os.close(each)


def parent_of(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).ppid()
    return -1
