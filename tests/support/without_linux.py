"""Python processes without what only Linux has, as on macOS: calls are missing, and /proc and /sys cannot be opened.

`environment(folder)` does this to the product's programs and to the processes that they start. What merely differs on
macOS, such as the name of the system, stays as on Linux. What only macOS has is there if the product uses it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

#: What Python 3.11 lacks on macOS and something here might use.
GONE: dict[Any, tuple[str, ...]] = {
    fcntl: ("F_ADD_SEALS", "F_OFD_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW", "F_SETLEASE", "F_SETPIPE_SZ"),
    os: (
        "O_DIRECT", "O_NOATIME", "O_PATH", "O_TMPFILE", "P_ALL", "WEXITED", "WNOWAIT", "copy_file_range", "eventfd",
        "fdatasync", "getrandom", "getxattr", "listxattr", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise",
        "posix_fallocate", "removexattr", "sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "setns",
        "setresgid", "setresuid", "setxattr", "splice", "timerfd_create", "unshare", "waitid",
    ),
    resource: ("RUSAGE_THREAD", "prlimit"),
    select: ("POLLRDHUP", "epoll", "poll"),
    signal: ("SIGPWR", "SIGRTMAX", "SIGRTMIN", "pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    socket: (
        "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_BINDTODEVICE", "SO_PASSCRED", "SO_PEERCRED", "TCP_CORK",
        "TCP_DEFER_ACCEPT", "TCP_KEEPIDLE", "TCP_QUICKACK", "TCP_USER_TIMEOUT",
    ),
    time: ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
}  # fmt: skip
F_FULLFSYNC = 51
GONE_FROM_LIBC = ("fallocate", "prctl", "setns", "unshare")
HIDDEN = ("/proc", "/sys")
WRAPPER = "WITHOUT_LINUX_PYTHON"


def environment(folder: Path) -> dict[str, str]:
    """Variables for a process, and the Python processes that it starts, to run without Linux."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import runpy\nrunpy.run_path({__file__!r})['forget_linux']()\n")
    # The supervisor is started with `-I -S`, which ignores these variables, so it gets this wrapper.
    code = f"import runpy, sys; runpy.run_path({__file__!r})['forget_linux'](); sys.argv = sys.argv[3:]; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    wrapper = folder / "python"
    wrapper.write_text(
        f'#!/bin/sh\n[ "$1" = -I ] || exec "{sys.executable}" "$@"\nexec "{sys.executable}" -I -S -c "{code}" "$@"\n'
    )
    wrapper.chmod(0o755)
    return {"PYTHONPATH": str(folder), WRAPPER: str(wrapper)}


def forget_linux() -> None:
    """Remove what only Linux has from this process, and add macOS's own flush."""
    for module, names in GONE.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    ctypes.CDLL = Library  # type: ignore[misc]
    plain, flush = fcntl.fcntl, os.fsync
    fcntl.F_FULLFSYNC = F_FULLFSYNC  # type: ignore[attr-defined]
    fcntl.fcntl = lambda fd, command, *more: (  # type: ignore[assignment]
        flush(fd) if command == F_FULLFSYNC else plain(fd, command, *more)
    )
    sys.addaudithook(hide)
    sys.executable = os.environ.get(WRAPPER, sys.executable)
    try:
        import psutil
    except ImportError:  # the supervisor has the standard library alone
        return
    del psutil.Process.cpu_affinity, psutil.sensors_temperatures


class Library(ctypes.CDLL):
    """The C library, without the functions that only Linux has."""

    def __getattr__(self, name: str) -> Any:
        if name in GONE_FROM_LIBC:
            raise AttributeError(name)
        return super().__getattr__(name)


def hide(event: str, arguments: tuple[Any, ...]) -> None:
    """Make a hidden path look missing when it is opened, listed or connected to, except by psutil."""
    place = {"open": 0, "os.listdir": 0, "os.scandir": 0, "socket.bind": 1, "socket.connect": 1}.get(event)
    if place is None or not str(arguments[place]).startswith(HIDDEN):
        return
    if "/psutil/" not in sys._getframe(1).f_code.co_filename:
        raise FileNotFoundError(2, "hidden by the test", str(arguments[place]))
