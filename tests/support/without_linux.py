"""A Python process without what only Linux has, as on macOS: its calls are gone, and /proc and /sys cannot be opened.

`environment(folder)` makes a worker and its supervisor such processes. What must be found at another place, such as
the name of the system, stays Linux's.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

#: What Python 3.11 does not have on macOS, as far as anything here might use it.
GONE: dict[Any, tuple[str, ...]] = {
    os: (
        "P_ALL", "WEXITED", "WNOWAIT", "copy_file_range", "eventfd", "fdatasync", "memfd_create", "pidfd_open", "pipe2",
        "posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "splice", "waitid",
    ),
    resource: ("prlimit",),
    select: ("epoll", "poll"),
    socket: ("SOCK_CLOEXEC", "SOCK_NONBLOCK"),
    time: ("CLOCK_BOOTTIME",),
}  # fmt: skip
GONE_FROM_LIBC = ("fallocate", "prctl")
HIDDEN = ("/proc", "/sys")
WRAPPER = "WITHOUT_LINUX_PYTHON"


def environment(folder: Path) -> dict[str, str]:
    """Variables for a process that shall be without Linux, as shall the Python processes that it starts."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import runpy\nrunpy.run_path({__file__!r})['forget_linux']()\n")
    # The supervisor is started with `-I -S`, reads no environment, and so would be spared.
    code = f"import runpy, sys; runpy.run_path({__file__!r})['forget_linux'](); sys.argv = sys.argv[3:]; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S -c "{code}" "$@"\n')
    wrapper.chmod(0o755)
    return {"PYTHONPATH": str(folder), WRAPPER: str(wrapper)}


def forget_linux() -> None:
    """Take it all away from this process."""
    for module, names in GONE.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    ctypes.CDLL = Library  # type: ignore[misc]
    sys.addaudithook(hide)
    sys.executable = os.environ.get(WRAPPER, sys.executable)
    try:
        import psutil
    except ImportError:  # the supervisor has the standard library alone
        return
    del psutil.Process.cpu_affinity, psutil.sensors_temperatures


class Library(ctypes.CDLL):
    """The system's library, without what only Linux has there."""

    def __getattr__(self, name: str) -> Any:
        if name in GONE_FROM_LIBC:
            raise AttributeError(name)
        return super().__getattr__(name)


def hide(event: str, arguments: tuple[Any, ...]) -> None:
    """Whoever opens, lists or connects to a hidden path is told that it is not there; but psutil may look."""
    place = {"open": 0, "os.listdir": 0, "os.scandir": 0, "socket.bind": 1, "socket.connect": 1}.get(event)
    if place is None or not str(arguments[place]).startswith(HIDDEN):
        return
    if "/psutil/" not in sys._getframe(1).f_code.co_filename:
        raise FileNotFoundError(2, "hidden by the test", str(arguments[place]))
