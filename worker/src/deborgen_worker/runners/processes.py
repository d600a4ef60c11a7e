"""The plain processes of the supervisor, which run in lanes. Of the standard library alone.

One that is asked for in a lane that is busy waits there, and is started the moment the one before it has ended; so
short jobs follow each other without a word from the worker between them.
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

from deborgen_worker.runners.programs import NEVER, Program, find

#: While at least so many still wait in a lane, the worker need not hear at once of what ended in it.
PLENTY = 4
HOLD_SECONDS = 0.01
#: How long to wait for the end of what was killed.
END_SECONDS = 2.0
#: The clock of the worker's `leases`: it counts sleep.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: What the system counts the memory of a process in: bytes on macOS, else KiB.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
#: In the environment of every program that we start: the name of its attempt, and a place below our `attempts`.
MARK, PLACE = b"DEBORGEN_ATTEMPT_ID=", b"DEBORGEN_RESULT="
#: Python and we ignore some signals; a program starts with none ignored.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class Processes:
    """Starts them, and waits for them. What runs is in `running`, by attempt, among the supervisor's other programs.

    `over(attempt, record, hold)` tells of an end, and `give_back(attempt)` of one that was not started. `lanes` has
    what waits, in its order, for each lane in which something runs; `waiting` says in which lane.
    """

    def __init__(
        self, running: dict[str, Program], over: Callable[..., None], give_back: Callable[[str], None]
    ) -> None:
        self.running, self.over, self.give_back = running, over, give_back
        self.by_pid: dict[int, str] = {}
        self.lanes: dict[str, deque[dict[str, Any]]] = {}
        self.waiting: dict[str, str] = {}
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self.null = os.open(os.devnull, os.O_RDWR)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    # Lanes

    def ask(self, ask: dict[str, Any]) -> None:
        """Start a program, or let it wait in its lane until the one before it has ended."""
        attempt, lane = ask["attempt"], ask["lane"]
        if attempt in self.waiting:
            return
        if lane in self.lanes:
            self.lanes[lane].append(ask)
            self.waiting[attempt] = lane
        else:
            self.lanes[lane] = deque([ask])
            self.go_on(lane)

    def go_on(self, lane: str) -> None:
        """Start the next one of a lane in which nothing runs; a lane with nothing left is gone."""
        queue = self.lanes[lane]
        while queue:
            ask = queue.popleft()
            self.waiting.pop(ask["attempt"], None)
            # After its moment, also when the machine has slept meanwhile, its lease may be over.
            if time.clock_gettime(CLOCK) > ask.get("start_by", NEVER):  # a worker of release 0.1 sends none
                self.give_back(ask["attempt"])
            elif self.start(ask):
                return
        del self.lanes[lane]

    def take_out(self, attempt: str) -> bool:
        """Take an attempt out of the lane in which it waits. False if it does not wait there."""
        lane = self.waiting.pop(attempt, None)
        if lane is None:
            return False
        self.lanes[lane] = deque(ask for ask in self.lanes[lane] if ask["attempt"] != attempt)
        return True

    # Starting

    def start(self, ask: dict[str, Any]) -> bool:
        """Whether it runs now. If not, its end has been told."""
        attempt, program = ask["attempt"], ask["argv"][0]
        try:
            output = open_output(ask["output"], ask["blank"])
        except OSError as error:
            self.over(attempt, {"error": f"the output file cannot be made: {error.strerror}"})
            return False
        process = Program(ask)
        try:
            with limited(ask["limits"]):
                process.pid = self.spawn(ask["argv"], ask["env"], ask["cwd"], output)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            with contextlib.suppress(OSError):  # a full disk
                os.write(output, f"{program}: {'not found' if missing else error.strerror}\n".encode())
            self.over(attempt, {"code": 127 if missing else 126, "reason": f"cannot execute {program!r}"})
            return False
        finally:
            os.close(output)
        fix_limits(process.pid, ask["limits"])
        self.running[attempt], self.by_pid[process.pid] = process, attempt
        return True

    def spawn(self, argv: list[str], env: dict[str, str], cwd: str, output: int) -> int:
        """The process, in a session of its own. We have one thread, so we may stand in its folder for a moment."""
        os.chdir(cwd)
        try:
            return os.posix_spawn(
                find(argv[0], env.get("PATH", os.defpath)),
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
        """Tell of all that have ended, and start what waits behind them."""
        while ended := self.wait_for_one():
            pid, status, usage = ended
            attempt = self.by_pid.pop(pid, None)
            if attempt is None:
                continue
            process = self.running.pop(attempt)
            self.end_orphans(attempt)
            now = time.monotonic()
            self.go_on(process.lane)
            code = os.waitstatus_to_exitcode(status)
            record = {"code": code if code >= 0 else 128 - code, "seconds": now - process.since,
                      "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss * RSS_UNIT}  # fmt: skip
            if code < 0:
                record["signal"] = -code
            hold = HOLD_SECONDS if len(self.lanes.get(process.lane, ())) >= PLENTY else 0.0
            self.over(attempt, record | process.end, hold, keep=not process.unwanted)

    def wait_for_one(self) -> tuple[int, int, Any] | None:
        """The pid, status and usage of a child that has ended, and the end of what is left of its group.

        The group is killed before the pid is free again. Python on macOS cannot look at a child without freeing its
        pid before version 3.13; the number of a group that still has members is not given away there either.
        """
        with contextlib.suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None:
                    return None
                self.end_group_of(found.si_pid)
                return os.wait4(found.si_pid, 0)
            ended = os.wait4(-1, os.WNOHANG)
            self.end_group_of(ended[0])
            return ended if ended[0] else None
        return None

    def end_group_of(self, pid: int) -> None:
        if pid in self.by_pid:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    def end_orphans(self, attempt: str) -> None:
        """End what the attempt put in the background in a session of its own: it has become our child."""
        children = read(f"/proc/self/task/{os.getpid()}/children").split()
        for pid in map(int, children):
            if pid not in self.by_pid and MARK + os.fsencode(attempt) in environment(pid):
                end(pid)


def open_output(path: str, blank: str) -> int:
    """The output file, which is also the mark that this attempt was started: a second start fails here."""
    try:
        os.rename(blank, path)  # noqa: PTH104 - the first start takes it away
    except FileNotFoundError:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    return os.open(path, os.O_WRONLY | os.O_APPEND)


@contextlib.contextmanager
def limited(wanted: dict[str, int]) -> Iterator[None]:
    """A program never runs without its limits: it inherits ours, which are lower while it is made."""
    own = {getattr(resource, name): resource.getrlimit(getattr(resource, name)) for name in wanted}
    for (kind, (_, hard)), value in zip(own.items(), wanted.values(), strict=True):
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    try:
        yield
    finally:
        for kind, limits in own.items():
            resource.setrlimit(kind, limits)


def fix_limits(pid: int, wanted: dict[str, int]) -> None:
    """Take from the program the right to raise them again."""
    for name, value in wanted.items():
        with contextlib.suppress(AttributeError, OSError, ValueError):  # macOS has no such call
            resource.prlimit(pid, getattr(resource, name), (value, value))


def end(pid: int) -> None:
    """KILL a process with its group, which is a job's alone."""
    with contextlib.suppress(OSError):
        os.killpg(os.getpgid(pid), signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def environment(pid: int) -> list[bytes]:
    return read(f"/proc/{pid}/environ").split(b"\0")


def read(path: str) -> bytes:
    """What the kernel says there; nothing where it does not tell."""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()
    return b""


def end_left_running() -> None:
    """End what a supervisor that was killed left running in this folder: nobody is there to wait for it."""
    until = time.monotonic() + END_SECONDS
    while (left := left_running()) and time.monotonic() < until:
        for pid in left:
            end(pid)
        time.sleep(0.005)


def left_running() -> list[int]:
    """The processes of our attempts, whoever their parent is now. Another worker's have their place elsewhere."""
    found, home = [], os.path.realpath(b".")
    with contextlib.suppress(FileNotFoundError):  # a system without /proc does not tell
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208
            places = [word[len(PLACE) :] for word in environment(pid) if word.startswith(PLACE)]
            if any(os.path.realpath(each.rpartition(b"/attempts/")[0] or b"/") == home for each in places):
                found.append(pid)
    return found
