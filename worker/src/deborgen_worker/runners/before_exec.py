"""What a program gets from the supervisor before its first instruction. This module uses only the standard library.

The kernel keeps all of it per thread, and a program inherits it from the thread that starts it. So programs are started
by threads that have taken the steps below, and the supervisor itself keeps its rights. A step can cost more than the
start, so a thread is kept for the next program that needs the same steps. The alternative, to take them in a fork
of Python, costs ten times as much.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from deborgen_worker.runners.landlock import Fence
from deborgen_worker.runners.users import become, is_job_user

_library = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWNET = 0x40000000
#: The network of the thread that opens it.
THREADS_NETWORK = "/proc/thread-self/ns/net"
#: The calls that read and set the flags of a network interface, and the flag that it is up.
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
#: Keep at most this many threads, each with a stack of this many bytes. While a program starts, its limit on memory is
#: the supervisor's too, so the threads must need little, and share one heap.
MAX_STARTERS, STACK = 160, 64 << 10
M_ARENA_MAX = -8
with contextlib.suppress(AttributeError):  # only glibc has more heaps
    _library.mallopt(M_ARENA_MAX, 1)

Start = Callable[[], int]


class CannotConfine(Exception):
    """The program was not started, because a step failed."""


def start_after_steps(request: dict[str, Any], start: Start) -> int:
    """Call `start` in a thread that has taken all steps for this program, while this thread waits.

    `hide` has the paths that the program must not reach, `read_only` those that it must not change. `own` is its
    folder, and `user` the number of its user. With `network` none, it has no network but a loopback. A worker that
    knows none of them sends none.

    Raises `CannotConfine` if a step fails.
    """
    user = request.get("user")
    return _starter_for(request).call(start if user is None else lambda: _start_as(user, start))


def _start_as(user: int, start: Start) -> int:
    if not is_job_user(user):
        raise CannotConfine(f"{user} is not a user of jobs")
    try:
        undo = become(user)
    except OSError as error:
        raise CannotConfine(f"it cannot run as a user of its own: {error.strerror}") from None
    try:
        return start()
    finally:
        undo()


def _never_gain_privileges() -> None:
    """Let no program that is started from here gain privileges, for example from a setuid file."""
    with contextlib.suppress(AttributeError):  # only Linux has it
        _library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


#: The network of all programs that have none, once there was one.
_empty_network: int | None = None


def _leave_network() -> None:
    """Move this thread to a network that has nothing but a loopback. All these programs share one: it is made once."""
    global _empty_network
    if _empty_network is not None:
        _check(_library.setns(_empty_network, CLONE_NEWNET))
        return
    _check(_library.unshare(CLONE_NEWNET))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        name = b"lo".ljust(16, b"\0")
        (flags,) = struct.unpack_from("h", fcntl.ioctl(line, SIOCGIFFLAGS, name + bytes(24)), 16)
        fcntl.ioctl(line, SIOCSIFFLAGS, name + struct.pack("h", flags | IFF_UP) + bytes(22))
    _empty_network = os.open(THREADS_NETWORK, os.O_RDONLY | os.O_CLOEXEC)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def can_leave_network() -> bool:
    """Whether this process may start programs without a network. A thread tries it."""
    tried: list[bool] = []

    def leave() -> None:
        try:
            _check(_library.unshare(CLONE_NEWNET))
            os.close(os.open(THREADS_NETWORK, os.O_RDONLY | os.O_CLOEXEC))  # there may be no /proc
            tried.append(True)
        except (OSError, AttributeError):  # only Linux has such a call
            tried.append(False)

    thread = threading.Thread(target=leave, name="network")
    thread.start()
    thread.join()
    return tried == [True]


class _Starter:
    """A thread that takes the steps, for good, and then starts programs one after the other."""

    def __init__(self, fence: Fence | None, own: str, leaves_network: bool) -> None:
        self._fence, self._own, self._leaves_network = fence, own, leaves_network
        self._wanted, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._wanted.acquire()
        self._done.acquire()
        self._start: Start | None = None
        self._pid = 0
        self._error: Exception | None = None
        _thread.stack_size(STACK)
        _thread.start_new_thread(self._run, ())

    def call(self, start: Start | None) -> int:
        """Let the thread call `start`, and return or raise what it does. With None, the thread ends."""
        self._start = start
        self._wanted.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self._pid

    def _run(self) -> None:
        folder: int | None = None
        failed: Exception | None = None
        try:
            _never_gain_privileges()
            if self._leaves_network:
                _leave_network()
            folder = self._fence.enter(self._own) if self._fence else None
        except OSError as error:
            failed = CannotConfine(f"it cannot be isolated: {error.strerror}")
        while True:
            self._wanted.acquire()
            try:
                if self._start is None:
                    break
                self._error = failed
                if not failed:
                    self._pid = self._start()
            except Exception as error:
                self._error = error
            finally:
                self._done.release()
        if folder is not None:
            os.close(folder)


_fences: dict[tuple[tuple[str, ...], tuple[str, ...]], Fence] = {}
#: By the fence that they are in, and by whether they have left the network.
_starters: OrderedDict[object, _Starter] = OrderedDict()


def _starter_for(request: dict[str, Any]) -> _Starter:
    """The thread that is in the right fence. If it is a new one, the least recently used one makes room for it."""
    key: object = None
    fence: Fence | None = None
    own = request.get("own") or os.path.dirname(request["cwd"])  # noqa: PTH120
    try:
        if "hide" in request or "read_only" in request:
            paths = tuple(request.get("hide", ())), tuple(request.get("read_only", ()))
            fence = _fences[paths] = _fences.get(paths) or Fence(*paths)
            key = fence.key(own)
        leaves_network = request.get("network") == "none"
        key = (key, leaves_network)
        if key not in _starters:
            while len(_starters) >= MAX_STARTERS:
                _starters.popitem(last=False)[1].call(None)
            _starters[key] = _Starter(fence, own, leaves_network)
    except (OSError, RuntimeError) as error:  # RuntimeError: there are too many threads
        raise CannotConfine(f"it cannot be isolated: {error}") from None
    _starters.move_to_end(key)
    return _starters[key]
