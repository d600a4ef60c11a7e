"""Users of their own for the plain processes of a root worker. This module uses only the standard library.

A user is only a number: it is in no file of the system, and has no group but the one with the same number. It belongs
to one folder of an attempt, whose `work` it owns. Users have even numbers, and nobody has the odd number above each.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pwd
from collections.abc import Callable

_library = ctypes.CDLL(None, use_errno=True)
#: The numbers of setgroups, setresuid and setresgid. The C library's own functions would change all threads.
_GENERIC = (159, 147, 149)
CALLS = {"x86_64": (116, 117, 119), "aarch64": _GENERIC, "riscv64": _GENERIC}
#: Root without these capabilities can neither start the processes of another user nor take care of their files: chown,
#: dac_override, fowner, setgid, setuid.
CAPABILITIES = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 6 | 1 << 7
#: Users of the system have lower numbers.
LOWEST = 1000


def why_no_users(users: range) -> str:
    """Why this process cannot start processes of these users; empty if it can."""
    if os.geteuid() != 0:
        return "the worker is not root"
    if not hasattr(os, "setresuid") or os.uname().machine not in CALLS or ctypes.sizeof(ctypes.c_void_p) != 8:
        return "this system has no way to start them"
    if _capabilities() & CAPABILITIES != CAPABILITIES:
        return "root lacks a capability here: chown, dac_override, fowner, setgid or setuid"
    if not any(first <= users[0] and users[-1] < first + count for first, count in _mapped()):
        return f"the users {users[0]} to {users[-1]} do not exist in this user namespace"
    taken = next((each for each in pwd.getpwall() if each.pw_uid in range(users[0], users[-1] + 2)), None)
    return f"the number {taken.pw_uid} is that of the user {taken.pw_name}" if taken else ""


def why_unreachable(folder: str) -> str:
    """Why other users cannot enter this folder; empty if they can."""
    while folder != "/":
        folder = os.path.dirname(folder)  # noqa: PTH120
        if not os.stat(folder).st_mode & 0o001:  # noqa: PTH116
            return f"other users cannot enter {folder}"
    return ""


def become(user: int) -> Callable[[], None]:
    """Give this thread the user as its real user, for a program that takes its ids from there (`resetids`).

    Returns a function that takes it back. The other threads keep their users.
    """
    setgroups, setresuid, setresgid = _calls()
    setgroups(0, 0)
    setresgid(user, user, user)
    setresuid(user, 0, 0)
    return lambda: setresuid(0, 0, 0)


def is_job_user(user: int) -> bool:
    return user >= LOWEST and user % 2 == 0


def signal_all(user: int, number: int) -> None:
    """Signal all processes of a user, also those that have left their session.

    Meanwhile this process has that user as its effective one, and as its real one a user that nobody has: so it reaches
    no other process, and none of the user's processes can signal it.
    """
    if not is_job_user(user):
        raise ValueError(f"{user} is not a user of jobs")
    _, setresuid, _ = _calls()
    setresuid(user + 1, user, 0)
    try:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)
    finally:
        setresuid(0, 0, 0)


@functools.cache
def _calls() -> list[Callable[..., None]]:
    """setgroups, setresuid and setresgid, for the calling thread alone."""

    def make(number: ctypes.c_long) -> Callable[..., None]:
        def call(*arguments: int) -> None:
            if _library.syscall(number, *arguments) < 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))

        return call

    return [make(ctypes.c_long(number)) for number in CALLS[os.uname().machine]]


def _capabilities() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)


def _mapped() -> list[tuple[int, int]]:
    """The user numbers that exist here: the first number and how many, for each range."""
    with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123
        return [(int(words[0]), int(words[2])) for words in map(str.split, file)]
