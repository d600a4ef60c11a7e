"""Processes that a killed supervisor has left running. This module uses only the standard library."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import time

from deborgen_worker.runners import users

#: Wait at most this many seconds for killed leftovers to end.
END_SECONDS = 2.0
#: Variables in the environment of every program: its attempt, and the path of its result below our folder `attempts`.
ATTEMPT_VARIABLE, RESULT_VARIABLE = b"DEBORGEN_ATTEMPT_ID=", b"DEBORGEN_RESULT="


def kill_group(pid: int) -> None:
    """Send KILL to a process and to its group, which has no processes of other jobs."""
    with contextlib.suppress(OSError):
        os.killpg(os.getpgid(pid), signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def environment(pid: int) -> list[bytes]:
    return read_file(f"/proc/{pid}/environ").split(b"\0")


def read_file(path: str) -> bytes:
    """The content of a file of the kernel; empty if it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()
    return b""


def end_leftovers(home: str = ".") -> None:
    """Kill the processes that a killed supervisor left running, because their exit codes are lost."""
    for user in job_users(home):
        users.signal_all(user, signal.SIGKILL)
    until = time.monotonic() + END_SECONDS
    while (left := leftovers(home)) and time.monotonic() < until:
        for pid in left:
            kill_group(pid)
        time.sleep(0.005)


def leftovers(folder: str = ".") -> list[int]:
    """The running processes of the attempts in a state directory. Another worker's processes have other paths."""
    found, home = [], os.path.realpath(os.fsencode(folder))
    with contextlib.suppress(FileNotFoundError):  # there is no /proc on macOS
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208
            paths = [word[len(RESULT_VARIABLE) :] for word in environment(pid) if word.startswith(RESULT_VARIABLE)]
            if any(os.path.realpath(each.rpartition(b"/attempts/")[0] or b"/") == home for each in paths):
                found.append(pid)
    return found


def job_users(home: str = ".") -> set[int]:
    """The users that own the workspaces of our attempts, if these are users of jobs and of nobody else.

    Then other users may enter the folder of the attempt, which is ours, so that no job can change that.
    """
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for folder in os.listdir(f"{home}/attempts"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                if not os.stat(f"{home}/attempts/{folder}").st_mode & 0o001:  # noqa: PTH116
                    continue
                found.add(os.stat(f"{home}/attempts/{folder}/work", follow_symlinks=False).st_uid)  # noqa: PTH116
    return {each for each in found if os.geteuid() == 0 and users.is_job_user(each) and not has_name(each)}


def has_name(user: int) -> bool:
    """Whether the system knows this user, so that it is not one of ours."""
    try:
        return bool(pwd.getpwuid(user))
    except KeyError:
        return False
