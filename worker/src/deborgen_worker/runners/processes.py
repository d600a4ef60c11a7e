"""The plain processes of the supervisor, which run in chains. This module uses only the standard library.

A program that is submitted to a busy chain waits there, and starts the moment the program before it has ended. So short
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

from deborgen_worker.runners import users
from deborgen_worker.runners.before_exec import CannotConfine, start_after_steps
from deborgen_worker.runners.leftovers import ATTEMPT_VARIABLE, environment, kill_group
from deborgen_worker.runners.priority import children, give_way, lower_session, machine_oom_kills
from deborgen_worker.runners.programs import NEVER, Program, find_executable

#: If at least this many programs wait in a chain, its reports are held back, so that several share a message.
HOLD_WHEN_WAITING = 4
#: Hold back a report for at most this many seconds.
HOLD_SECONDS = 0.01
#: Before a program starts, read the kernel's count of kills again if it is older than this many seconds.
OOM_SECONDS = 1.0
#: The clock of the worker's `leases`, which also counts the time in which the machine sleeps.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: The unit in which the system counts the memory of a process: bytes on macOS, KiB elsewhere.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
#: Python and this module ignore some signals. A program starts with none of them ignored.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class Processes:
    """Starts processes and waits for them. `running` has all programs of the supervisor, by attempt.

    `on_end(attempt, report, hold)` is called for each end, and `give_back(attempt)` for a program that was not started.
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
        self.oom_kills, self.oom_kills_at = 0, 0.0
        self.session_lowered = False
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    # Chains

    def submit(self, request: dict[str, Any]) -> None:
        """Start a program, or let it wait in its chain until the programs before it have ended."""
        attempt, chain = request["attempt"], request["lane"]  # release 0.1 uses this key on either side
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
            # After `start_by` its lease may have expired. A worker of release 0.1 sends no `start_by`.
            if time.clock_gettime(CLOCK) > request.get("start_by", NEVER):
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
            output = open_output(request["output"], request["blank"], request.get("user"))
        except OSError as error:
            self.on_end(attempt, {"error": f"the output file cannot be created: {error.strerror}"})
            return False
        process = Program(request)
        process.oom_kills = self.count_oom_kills(OOM_SECONDS)
        if "limit" in request:  # it may have waited in a chain since the worker sent it
            request["env"]["DEBORGEN_DEADLINE"] = str(int(time.time() + request["limit"]))
        try:
            process.pid = self.spawn(request, output)
        except CannotConfine as error:
            self.on_end(attempt, {"error": str(error)})
            return False
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            with contextlib.suppress(OSError):  # a full disk
                os.write(output, f"{program}: {'not found' if missing else error.strerror}\n".encode())
            self.on_end(attempt, {"code": 127 if missing else 126, "reason": f"cannot execute {program!r}"})
            return False
        finally:
            os.close(output)
        if request.get("gives_way"):
            self.give_way(process.pid)
        fix_limits(process.pid, request["limits"])
        self.running[attempt], self.by_pid[process.pid] = process, attempt
        return True

    def spawn(self, request: dict[str, Any], output: int) -> int:
        """Start the process in a group of its own. Nothing else runs meanwhile, so folder and limits can be changed
        for a moment.

        It stays in our session, because a session of its own would also be one for the kernel's scheduler.
        """
        argv, env = request["argv"], request["env"]

        def start() -> int:
            with limited(request["limits"]):
                return os.posix_spawn(
                    find_executable(argv[0], env.get("PATH", os.defpath)),
                    argv,
                    env,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, fd, to) for fd, to in ((self.null, 0), (output, 1), (output, 2))
                    ],
                    setpgroup=0,
                    setsigmask=(),
                    setsigdef=DEFAULT_SIGNALS,
                    resetids=True,
                )

        os.chdir(request["cwd"])
        try:
            return start_after_steps(request, start)
        finally:
            os.fchdir(self.home)

    def give_way(self, pid: int) -> None:
        """Let a new program run only while no other program wants to. All programs are in our session."""
        give_way(pid)
        if not self.session_lowered:
            lower_session(pid)
            self.session_lowered = True

    # Ends

    def reap(self) -> None:
        """Report all processes that have ended, and start the programs that wait behind them."""
        while ended := self.wait_for_one():
            pid, status, usage = ended
            attempt = self.by_pid.pop(pid, None)
            if attempt is None:
                continue
            process = self.running.pop(attempt)
            self.end_orphans(attempt, process.user)
            now = time.monotonic()
            self.start_next(process.chain)
            code = os.waitstatus_to_exitcode(status)
            report = {"code": code if code >= 0 else 128 - code, "seconds": now - process.since,
                      "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss * RSS_UNIT}  # fmt: skip
            if code < 0:
                report["signal"] = -code
            if code == -signal.SIGKILL:
                report["shortage"] = self.count_oom_kills() > process.oom_kills
            hold = HOLD_SECONDS if len(self.chains.get(process.chain, ())) >= HOLD_WHEN_WAITING else 0.0
            self.on_end(attempt, report | process.end, hold, keep=not process.unwanted)

    def count_oom_kills(self, age: float = 0.0) -> int:
        """How often the kernel has killed a process for want of memory, as it was at most `age` seconds ago."""
        now = time.monotonic()
        if now - self.oom_kills_at >= age:
            self.oom_kills, self.oom_kills_at = machine_oom_kills(), now
        return self.oom_kills

    def wait_for_one(self) -> tuple[int, int, Any] | None:
        """The pid, status and usage of a child that has ended. The rest of its process group is killed.

        The group is killed before the pid can be reused. Python before 3.13 cannot do that on macOS. But no system
        reuses the number of a group that still has members.
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

    def end_orphans(self, attempt: str, user: int) -> None:
        """Kill background processes of the attempt that left its group. They have become our children."""
        if user:
            users.signal_all(user, signal.SIGKILL)
            return
        for pid in children(os.getpid()):
            if pid not in self.by_pid and ATTEMPT_VARIABLE + os.fsencode(attempt) in environment(pid):
                kill_group(pid)


def open_output(path: str, blank: str, user: int | None) -> int:
    """Open the output file. It marks the attempt as started, so a second start fails here.

    The user of the program gets it, because a program may open its output again, for example as /dev/stderr.
    """
    try:
        os.rename(blank, path)  # noqa: PTH104 - only the first start finds it
    except FileNotFoundError:
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    else:
        output = os.open(path, os.O_WRONLY | os.O_APPEND)
    if user is not None:
        os.fchown(output, user, user)
    return output


@contextlib.contextmanager
def limited(wanted: dict[str, int]) -> Iterator[None]:
    """Lower our own limits while a program starts. The program inherits them, so it never runs without limits."""
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
