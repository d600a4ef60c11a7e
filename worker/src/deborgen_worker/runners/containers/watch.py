"""Notice at once when a container's program is gone, without polling the engine.

The kernel reports the end of a process through a pidfd. Two processes are watched: the container's first process, whose
end is the end of the job, and its monitor (Podman's is conmon), without which nobody learns the exit code.
"""

from __future__ import annotations

import contextlib
import os
import select
from enum import Enum, auto

import psutil


class Gone(Enum):
    PROGRAM = auto()
    #: Without its monitor, the program continues to run.
    MONITOR = auto()


def wait_until_gone(pid: int, monitor: int) -> Gone | None:
    """Wait until one of the two processes is gone, and return which one.

    Returns None at once if there is nothing to watch: the program has ended, or it runs on another machine or in
    another namespace. The caller must then ask the engine.
    """
    if pid <= 0 or parent_of(pid) != monitor:
        return None
    poll, opened = select.poll(), []
    try:
        for each in (pid, monitor):
            opened.append(os.pidfd_open(each))
            poll.register(opened[-1], select.POLLIN)
        return Gone.PROGRAM if opened[0] in dict(poll.poll()) else Gone.MONITOR
    except ProcessLookupError:
        return Gone.PROGRAM  # it ended just now, and the engine will soon know how
    except OSError:
        return None
    finally:
        for each in opened:
            os.close(each)


def parent_of(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).ppid()
    return -1
