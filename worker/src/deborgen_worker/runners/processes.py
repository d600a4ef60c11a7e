"""The plain processes of the supervisor, which run in chains. It uses the standard library alone.

A program that is submitted to a busy chain waits there, and starts the moment the one before it has ended. So short
jobs follow each other without a message from the worker between them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from deborgen_worker.runners.programs import NEVER, Program, find_executable

#: While at least this many programs wait in a chain, reports of ends in it may be held back,
HOLD_WHEN_WAITING = 4
#: for at most this many seconds, so that they share a message.
HOLD_SECONDS = 0.01
#: Wait at most this many seconds for killed leftovers to end.
END_SECONDS = 2.0
#: The same clock as that of the worker's `leases`, which counts the time in which the machine sleeps.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: The unit in which the system counts the memory of a process: bytes on macOS, KiB elsewhere.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
#: Variables in the environment of every program that we start: its attempt, and a path below our folder `attempts`.
ATTEMPT_VARIABLE, RESULT_VARIABLE = b"DEBORGEN_ATTEMPT_ID=", b"DEBORGEN_RESULT="
#: Python and this module ignore some signals. A program starts with none of them ignored.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class Processes:
    """Starts processes and waits for them. `running` has them by attempt, among the supervisor's other programs.

    It calls `on_end(attempt, report, hold)` for each end, and `give_back(attempt)` for a program that was not started.
    `chains` has the waiting requests of each busy chain in order, and `waiting` the chain of each waiting attempt.
    """

    def __init__(
        self, running: dict[str, Program], on_end: Callable[..., None], give_back: Callable[[str], None]
    ) -> None:
        self.running, self.on_end, self.give_back = running, on_end, give_back
        self.by_pid: dict[int, str] = {}
        self.chains: dict[str, deque[dict[str, Any]]] = {}
        self.waiting: dict[str, str] = {}
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self.null = os.open(os.devnull, os.O_RDWR)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    # Chains

    def submit(self, request: dict[str, Any]) -> None:
        """Start a program, or let it wait in its chain until the one before it has ended."""
        attempt, chain = request["attempt"], request["lane"]  # the key of release 0.1: worker and supervisor may differ
        if attempt in self.waiting:
            return
        if chain in self.chains:
            self.chains[chain].append(request)
            self.waiting[attempt] = chain
        else:
            self.chains[chain] = deque([request])
            self.start_next(chain)

    def start_next(self, chain: str) -> None:
        """Start the next program of a chain in which none runs. Forget the chain if no program is left."""
        queue = self.chains[chain]
        while queue:
            request = queue.popleft()
            self.waiting.pop(request["attempt"], None)
            # After that moment its lease may have expired, perhaps while the machine slept.
            if time.clock_gettime(CLOCK) > request.get("start_by", NEVER):  # a worker of release 0.1 sends none
                self.give_back(request["attempt"])
            elif self.start(request):
                return
        del self.chains[chain]

    def remove_waiting(self, attempt: str) -> bool:
        """Remove an attempt that waits in a chain. False if it does not wait."""
        chain = self.waiting.pop(attempt, None)
        if chain is None:
            return False
        self.chains[chain] = deque(request for request in self.chains[chain] if request["attempt"] != attempt)
        return True

    # Starting

    def start(self, request: dict[str, Any]) -> bool:
        """Start a program. Returns whether it runs; if not, its end has been reported."""
        attempt, program = request["attempt"], request["argv"][0]
        try:
            output = open_output(request["output"], request["blank"])
        except OSError as error:
            self.on_end(attempt, {"error": f"the output file cannot be created: {error.strerror}"})
            return False
        process = Program(request)
        try:
            with limited(request["limits"]):
                process.pid = self.spawn(request["argv"], request["env"], request["cwd"], output)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            with contextlib.suppress(OSError):  # a full disk
                os.write(output, f"{program}: {'not found' if missing else error.strerror}\n".encode())
            self.on_end(attempt, {"code": 127 if missing else 126, "reason": f"cannot execute {program!r}"})
            return False
        finally:
            os.close(output)
        fix_limits(process.pid, request["limits"])
        self.running[attempt], self.by_pid[process.pid] = process, attempt
        return True

    def spawn(self, argv: list[str], env: dict[str, str], cwd: str, output: int) -> int:
        """Start the process in a session of its own. We have one thread, so we may change the folder for a moment."""
        os.chdir(cwd)
        try:
            return os.posix_spawn(
                find_executable(argv[0], env.get("PATH", os.defpath)),
                argv,
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in ((self.null, 0), (output, 1), (output, 2))],
                setsid=True,
                setsigmask=(),
                setsigdef=DEFAULT_SIGNALS,
            )
        finally:
            os.fchdir(self.home)

    # Ends

    def reap(self) -> None:
        """Report all ended processes, and start the ones that wait behind them."""
        while ended := self.wait_for_one():
            pid, status, usage = ended
            attempt = self.by_pid.pop(pid, None)
            if attempt is None:
                continue
            process = self.running.pop(attempt)
            self.end_orphans(attempt)
            now = time.monotonic()
            self.start_next(process.chain)
            code = os.waitstatus_to_exitcode(status)
            report = {"code": code if code >= 0 else 128 - code, "seconds": now - process.since,
                      "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss * RSS_UNIT}  # fmt: skip
            if code < 0:
                report["signal"] = -code
            hold = HOLD_SECONDS if len(self.chains.get(process.chain, ())) >= HOLD_WHEN_WAITING else 0.0
            self.on_end(attempt, report | process.end, hold, keep=not process.unwanted)

    def wait_for_one(self) -> tuple[int, int, Any] | None:
        """The pid, status and usage of a child that has ended. The rest of its process group is killed.

        The group is killed before the pid is free again. On macOS, Python before 3.13 cannot wait for a child without
        freeing its pid, but there, too, the number of a group that still has members is not reused.
        """
        with contextlib.suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None:
                    return None
                self.kill_group_of(found.si_pid)
                return os.wait4(found.si_pid, 0)
            ended = os.wait4(-1, os.WNOHANG)
            self.kill_group_of(ended[0])
            return ended if ended[0] else None
        return None

    def kill_group_of(self, pid: int) -> None:
        if pid in self.by_pid:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    def end_orphans(self, attempt: str) -> None:
        """Kill background processes of the attempt that have a session of their own: they have become our children."""
        children = read_file(f"/proc/self/task/{os.getpid()}/children").split()
        for pid in map(int, children):
            if pid not in self.by_pid and ATTEMPT_VARIABLE + os.fsencode(attempt) in environment(pid):
                kill_group(pid)


def open_output(path: str, blank: str) -> int:
    """Open the output file. It also marks the attempt as started: a second start fails here."""
    try:
        os.rename(blank, path)  # noqa: PTH104 - only the first start finds it
    except FileNotFoundError:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    return os.open(path, os.O_WRONLY | os.O_APPEND)


@contextlib.contextmanager
def limited(wanted: dict[str, int]) -> Iterator[None]:
    """Lower our own limits while a program is started. It inherits them, so it never runs without its limits."""
    own = {getattr(resource, name): resource.getrlimit(getattr(resource, name)) for name in wanted}
    for (kind, (_, hard)), value in zip(own.items(), wanted.values(), strict=True):
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    try:
        yield
    finally:
        for kind, limits in own.items():
            resource.setrlimit(kind, limits)


def fix_limits(pid: int, wanted: dict[str, int]) -> None:
    """Keep the program from raising its limits again."""
    for name, value in wanted.items():
        with contextlib.suppress(AttributeError, OSError, ValueError):  # macOS has no such call
            resource.prlimit(pid, getattr(resource, name), (value, value))


def kill_group(pid: int) -> None:
    """Send KILL to a process and its group, which belongs to one job alone."""
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


def end_leftovers() -> None:
    """Kill the processes that a killed supervisor left running: nobody would wait for them."""
    until = time.monotonic() + END_SECONDS
    while (left := leftovers()) and time.monotonic() < until:
        for pid in left:
            kill_group(pid)
        time.sleep(0.005)


def leftovers() -> list[int]:
    """The processes of this worker's attempts, whatever their parents. Those of another worker have other paths."""
    found, home = [], os.path.realpath(b".")
    with contextlib.suppress(FileNotFoundError):  # there is no /proc on macOS
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208
            paths = [word[len(RESULT_VARIABLE) :] for word in environment(pid) if word.startswith(RESULT_VARIABLE)]
            if any(os.path.realpath(each.rpartition(b"/attempts/")[0] or b"/") == home for each in paths):
                found.append(pid)
    return found
