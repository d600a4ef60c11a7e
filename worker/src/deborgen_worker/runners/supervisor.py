"""Watches over all programs of a worker, and outlives it. It is the parent of plain processes, so no exit code is lost.

It is a program of its own (`python -I -S supervisor.py STATE_DIR`), with the standard library alone, one thread and a
few megabytes. A worker connects to its socket, tells it what to start, and is told what ended. What ended is also a
line in `supervisor.jsonl`, which its successor reads should it be killed; what it left running is known by its
environment. Of a container it knows the commands that end, stop and wake it, and how much time it may use.

It ends what has used up its time although the worker should have done so, and everything when no worker has come for
two minutes. While there is no worker, the owner's commands come here. With nothing to watch it leaves by itself.

Programs run in lanes. One that is asked for in a lane that is busy waits there, and is started the moment the one
before it has ended; so short jobs follow each other without a word from the worker between them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque
from typing import Any

IDLE_SECONDS = 30.0
#: What no worker takes up within this time is ended. A test may make it shorter.
TAKE_UP_SECONDS = float(os.environ.get("DEBORGEN_TAKE_UP_SECONDS", "120"))
JOURNAL_BYTES = 1 << 20
#: While at least so many still wait in a lane, the worker need not hear at once of what ended in it.
PLENTY = 4
HOLD_SECONDS = 0.01
#: How long to wait for the end of what was killed.
END_SECONDS = 2.0
NEVER = float("inf")
#: The clock of the worker's `leases`: it counts sleep.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
PR_SET_CHILD_SUBREAPER = 36
#: What the system counts the memory of a process in: bytes on macOS, else KiB.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
#: In the environment of every program that we start: the name of its attempt, and a place below our `attempts`.
MARK, PLACE = b"DEBORGEN_ATTEMPT_ID=", b"DEBORGEN_RESULT="
#: Python and we ignore some signals; a program starts with none ignored.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


def find(program: str, path: str) -> str:
    """Where the program is, as a shell would look for it; an error if it is nowhere."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        found = f"{folder or '.'}/{program}"
        if os.access(found, os.X_OK):
            return found
    raise FileNotFoundError(program)


def listen(name: str) -> socket.socket:
    """A socket of this name in the folder in which we are, for this user alone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)  # noqa: PTH108
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(name)
    os.chmod(name, 0o600)  # noqa: PTH101
    found.listen(4)
    return found


class Supervisor:
    """Starts, signals and waits. `running` by attempt, `ended` until the worker says that it has written it down.

    `lanes` has what waits, in its order, for each lane in which something runs; `waiting` says in which lane. A
    container has no `pid` in its record, but `verbs`: a command for each signal.
    """

    def __init__(self, folder: str) -> None:
        os.chdir(folder)
        os.umask(0o022)
        self.home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self.running: dict[str, dict[str, Any]] = {}
        self.by_pid: dict[int, str] = {}
        self.ended: dict[str, dict[str, Any]] = {}
        self.unwanted: set[str] = set()
        self.lanes: dict[str, deque[dict[str, Any]]] = {}
        self.waiting: dict[str, str] = {}
        self.client: socket.socket | None = None
        self.inbox = b""
        self.outbox: list[bytes] = []
        self.due = NEVER
        self.idle_since = time.monotonic()
        self.null = os.open(os.devnull, os.O_RDWR)
        self.journal = os.open("supervisor.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.children = -1
        with contextlib.suppress(OSError):  # a kernel that does not tell
            self.children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        self.limits = Limits()
        self.load()

    def load(self) -> None:
        """Take over from a supervisor that was killed: what it left running has nobody to wait for it, and is ended."""
        with open("supervisor.jsonl", "rb") as file:  # noqa: PTH123
            for line in file:
                with contextlib.suppress(ValueError, LookupError, TypeError):
                    record = json.loads(line)
                    self.ended[record["exit"]] = record
        until = time.monotonic() + END_SECONDS
        while (left := self.left_running()) and time.monotonic() < until:
            for pid in left:
                self.end(pid)
            time.sleep(0.005)

    # What the worker asks for

    def ask(self, ask: dict[str, Any]) -> None:
        """Start a program, or let it wait in its lane until the one before it has ended."""
        attempt, lane = ask["attempt"], ask["lane"]
        if attempt in self.running or attempt in self.ended or attempt in self.waiting:
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
                self.send({"exit": ask["attempt"], "recalled": True})
            elif self.spawn(ask):
                return
        del self.lanes[lane]

    def take_out(self, attempt: str) -> bool:
        """Take an attempt out of the lane in which it waits. False if it does not wait there."""
        lane = self.waiting.pop(attempt, None)
        if lane is None:
            return False
        self.lanes[lane] = deque(ask for ask in self.lanes[lane] if ask["attempt"] != attempt)
        return True

    def spawn(self, ask: dict[str, Any]) -> bool:
        """Whether it runs now. If not, its end has been told."""
        attempt = ask["attempt"]
        try:
            output = self.open_output(ask["output"], ask["blank"])
        except OSError as error:
            self.over(attempt, {"error": f"the output file cannot be made: {error.strerror}"})
            return False
        now = time.monotonic()
        try:
            with self.limits.lowered(ask["limits"]):
                pid = self.start(ask["argv"], ask["env"], ask["cwd"], output)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            with contextlib.suppress(OSError):  # a full disk
                os.write(output, f"{ask['argv'][0]}: {'not found' if missing else error.strerror}\n".encode())
            self.over(attempt, {"code": 127 if missing else 126, "reason": f"cannot execute {ask['argv'][0]!r}"})
            return False
        finally:
            os.close(output)
        self.limits.fix(pid, ask["limits"])
        self.running[attempt] = {"pid": pid, "lane": ask["lane"], **self.clock_of(now, ask)}
        self.by_pid[pid] = attempt
        return True

    @staticmethod
    def open_output(path: str, blank: str) -> int:
        """The output file, which is also the mark that this attempt was started: a second start fails here."""
        try:
            os.rename(blank, path)  # noqa: PTH104 - the first start takes it away
        except FileNotFoundError:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        return os.open(path, os.O_WRONLY | os.O_APPEND)

    def start(self, argv: list[str], env: dict[str, str], cwd: str, output: int) -> int:
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

    def watch(self, ask: dict[str, Any]) -> None:
        """Watch over a container that the worker has started, or found again."""
        attempt = ask["attempt"]
        if attempt not in self.running and attempt not in self.ended:
            self.running[attempt] = {
                "verbs": ask["verbs"], "env": ask["env"], **self.clock_of(time.monotonic() - ask["used"], ask)
            }  # fmt: skip
        self.find(attempt)

    @staticmethod
    def clock_of(since: float, ask: dict[str, Any]) -> dict[str, Any]:
        return {"since": since, "until": since + ask["timeout"], "stopped": 0.0}

    def find(self, attempt: str) -> None:
        """Say what became of an attempt."""
        if attempt in self.ended:
            self.send({"standing": "ended", "attempt": attempt, "end": self.ended[attempt]})
            self.send(self.ended[attempt])
            return
        was = self.running.get(attempt, {})
        self.send({"standing": "running" if was else "unknown", "attempt": attempt,
                   "frozen": "left" in was, "stopped": self.stopped(was)})  # fmt: skip

    def obey(self, line: socket.socket) -> None:
        """Take one command of the owner's, while no worker is there, and answer it."""
        with line, contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            line.settimeout(1.0)
            do, now = json.loads(line.recv(4096))["do"], time.monotonic()
            if do in {"pause", "resume"}:
                number = signal.SIGSTOP if do == "pause" else signal.SIGCONT
                for attempt, was in self.running.items():
                    self.kill_all(attempt, number)
                    self.keep_time(was, number)
            programs = {name: [now - was["since"] - self.stopped(was), "left" in was]
                        for name, was in self.running.items()}  # fmt: skip
            line.sendall(json.dumps({"programs": programs}).encode() + b"\n")

    def handle(self, ask: dict[str, Any]) -> None:
        do, attempt = ask["do"], ask.get("attempt", "")
        if do == "spawn":
            self.ask(ask)
        elif do == "watch":
            self.watch(ask)
        elif do == "unwatch":
            self.running.pop(attempt, None)
            self.ended.pop(attempt, None)
        elif do == "note" and attempt in self.running:
            self.keep_time(self.running[attempt], ask["signal"])
        elif do == "signal":
            if attempt in self.running:
                self.kill_all(attempt, ask["signal"])
                self.keep_time(self.running[attempt], ask["signal"])
            elif ask["signal"] in {signal.SIGTERM, signal.SIGKILL} and self.take_out(attempt):
                self.over(attempt, {"error": "it was ended before it was started"})
        elif do == "recall":
            if self.take_out(attempt):
                self.send({"exit": attempt, "recalled": True})
        elif do == "adopt":
            self.take_out(attempt)  # what waits has not begun: the new worker starts it when its lease is alive
            self.find(attempt)
        elif do == "discard":
            if attempt in self.running:
                self.kill_all(attempt, signal.SIGKILL)
                if "pid" in self.running[attempt]:
                    self.unwanted.add(attempt)
                else:
                    del self.running[attempt]
            self.take_out(attempt)
            self.ended.pop(attempt, None)
        elif do == "list":
            self.send({"list": [*self.running, *self.waiting, *self.ended]})
        elif do == "quit" and not self.running:
            sys.exit(0)

    @staticmethod
    def keep_time(was: dict[str, Any], number: int) -> None:
        """While its owner has it stopped, its time does not run."""
        now = time.monotonic()
        if number == signal.SIGSTOP and "left" not in was:
            was["left"], was["until"], was["since_stop"] = was["until"] - now, NEVER, now
        elif number == signal.SIGCONT and "left" in was:
            was["until"] = now + was.pop("left")
            was["stopped"] = was.get("stopped", 0.0) + now - was.pop("since_stop")

    @staticmethod
    def stopped(was: dict[str, Any]) -> float:
        """For how many seconds it was stopped, all in all."""
        return float(was.get("stopped", 0.0) + (time.monotonic() - was["since_stop"] if "since_stop" in was else 0.0))

    def end_late(self) -> None:
        """End what has used up its time, and all that no worker takes up."""
        now = time.monotonic()
        alone = self.client is None and now >= self.idle_since + TAKE_UP_SECONDS
        for attempt, was in list(self.running.items()):
            if (alone and "end" not in was) or now >= was["until"]:
                was["until"] = NEVER
                was["end"] = {"error": "no worker took it up in time"} if alone else {"timed_out": True}
                self.kill_all(attempt, signal.SIGKILL)
                if "pid" not in was:
                    del self.running[attempt]
                    self.over(attempt, was["end"])
        if alone:
            for attempt in list(self.waiting):
                self.take_out(attempt)

    # What happens

    def reap(self) -> None:
        while True:
            try:
                pid, status, usage = self.wait_for_one()
            except ChildProcessError:
                return
            if pid == 0:
                return
            attempt = self.by_pid.pop(pid, None)
            if attempt is None:
                continue
            was = self.running.pop(attempt)
            self.end_orphans(attempt)
            now = time.monotonic()
            self.go_on(was["lane"])
            code = os.waitstatus_to_exitcode(status)
            record = {"code": code if code >= 0 else 128 - code, "seconds": now - was["since"],
                      "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss * RSS_UNIT}  # fmt: skip
            if code < 0:
                record["signal"] = -code
            record |= was.get("end", {})
            self.over(attempt, record, HOLD_SECONDS if len(self.lanes.get(was["lane"], ())) >= PLENTY else 0.0)

    def wait_for_one(self) -> tuple[int, int, Any]:
        """The pid, status and usage of a child that has ended, and the end of what is left of its group; 0 if none has.

        The group is killed before the pid is free again. Python on macOS cannot look at a child without freeing its
        pid before version 3.13; the number of a group that still has members is not given away there either.
        """
        if hasattr(os, "waitid"):
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return 0, 0, None
            if found.si_pid in self.by_pid:
                self.kill(found.si_pid, signal.SIGKILL)
            return os.wait4(found.si_pid, 0)
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid in self.by_pid:
            self.kill(pid, signal.SIGKILL)
        return pid, status, usage

    def over(self, attempt: str, record: dict[str, Any], hold: float = 0.0) -> None:
        record["exit"] = attempt
        if attempt not in self.unwanted:
            self.ended[attempt] = record
        self.unwanted.discard(attempt)
        line = json.dumps(record).encode() + b"\n"
        with contextlib.suppress(OSError):  # a full disk: the worker is told all the same
            os.write(self.journal, line)
        self.tell(line, hold)

    def end_orphans(self, attempt: str) -> None:
        """End what the attempt put in the background in a session of its own: it has become our child."""
        if self.children < 0:
            return
        words = b""
        while more := os.pread(self.children, 4096, len(words)):
            words += more
        for pid in map(int, words.split()):
            if pid not in self.by_pid and MARK + os.fsencode(attempt) in self.environment(pid):
                self.end(pid)

    def kill_all(self, attempt: str, number: int) -> None:
        """Send a signal to all processes of an attempt; to a container by its command."""
        was = self.running[attempt]
        if "pid" in was:
            self.kill(was["pid"], number)
        elif argv := was["verbs"].get(signal.Signals(number).name):
            with contextlib.suppress(OSError):
                os.posix_spawn(find(argv[0], was["env"].get("PATH", os.defpath)), argv, was["env"], setsid=True)

    @staticmethod
    def kill(group: int, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(group, number)

    def end(self, pid: int) -> None:
        """KILL a process with its group, which is a job's alone."""
        with contextlib.suppress(OSError):
            os.killpg(os.getpgid(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)

    @staticmethod
    def environment(pid: int) -> list[bytes]:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return file.read().split(b"\0")
        return []

    @staticmethod
    def processes() -> list[int]:
        """Every process of this machine; none where the system has no /proc to tell them."""
        with contextlib.suppress(FileNotFoundError):
            return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        return []

    def left_running(self) -> list[int]:
        """The processes of our attempts, whoever their parent is now. Another worker's have their place elsewhere."""
        home = os.path.realpath(b".")
        found = []
        for pid in self.processes():
            for word in self.environment(pid):
                if word.startswith(PLACE):
                    state, attempts, _ = word[len(PLACE) :].rpartition(b"/attempts/")
                    if attempts and os.path.realpath(state) == home:
                        found.append(pid)
        return found

    # The line to the worker

    def send(self, record: dict[str, Any]) -> None:
        self.tell(json.dumps(record).encode() + b"\n")

    def tell(self, line: bytes, hold: float = 0.0) -> None:
        """Tell the worker, at the latest after `hold` seconds: what comes until then goes with it."""
        self.outbox.append(line)
        self.due = min(self.due, time.monotonic() + hold)

    def flush(self) -> None:
        if self.due > time.monotonic():
            return
        if self.client is not None:
            data = b"".join(self.outbox)
            try:
                self.client.sendall(data)
            except OSError:
                self.drop()
        self.outbox.clear()
        self.due = NEVER
        if not self.running and not self.ended and os.fstat(self.journal).st_size > JOURNAL_BYTES:
            os.ftruncate(self.journal, 0)

    def drop(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client, self.inbox = None, b""
        self.idle_since = time.monotonic()

    def receive(self) -> None:
        assert self.client is not None
        try:
            data = self.client.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            return self.drop()
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        for line in lines:
            self.handle(json.loads(line))
        return None

    def serve(self) -> None:
        listener, owner = listen("supervisor.sock"), listen("owner.sock")
        woken, waker = socket.socketpair()
        woken.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            wait = min([self.due, *(each["until"] for each in self.running.values())]) - time.monotonic()
            if self.client is None and self.running:
                left = self.idle_since + TAKE_UP_SECONDS - time.monotonic()
                wait = min(wait, left if left > 0 else 1.0)  # after that, only the ends of what was killed are awaited
            elif self.client is None:
                wait = min(wait, self.idle_since + IDLE_SECONDS - time.monotonic())
                if wait <= 0:
                    return
            sockets = [listener, owner, woken] + ([self.client] if self.client else [])
            ready, _, _ = select.select(sockets, [], [], None if wait == NEVER else max(0.0, wait))
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(4096)
            if self.client in ready:
                self.receive()
            if listener in ready:
                self.drop()
                self.client, _ = listener.accept()
                # A worker that does not listen must not stop the supervisor for ever.
                self.client.settimeout(5.0)
            if owner in ready:
                self.obey(owner.accept()[0])
            self.reap()
            self.end_late()
            self.flush()


class Limits:
    """The limits of a program. It never runs without them: it inherits ours, which are lower while it is made."""

    def __init__(self) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.own: dict[str, tuple[int, int, int]] = {}
        for name in ("RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NPROC"):
            kind = getattr(resource, name)
            self.own[name] = (kind, *resource.getrlimit(kind))

    @contextlib.contextmanager
    def lowered(self, wanted: dict[str, int]) -> Any:
        for name, value in wanted.items():
            kind, _, hard = self.own[name]
            resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
        try:
            yield
        finally:
            for name in wanted:
                kind, soft, hard = self.own[name]
                resource.setrlimit(kind, (soft, hard))

    def fix(self, pid: int, wanted: dict[str, int]) -> None:
        """Take from the program the right to raise them again."""
        for name, value in wanted.items():
            with contextlib.suppress(AttributeError, OSError, ValueError):  # macOS has no such call
                resource.prlimit(pid, self.own[name][0], (value, value))


def main() -> None:
    folder = sys.argv[1]
    lock = os.open(os.path.join(folder, "supervisor.lock"), os.O_RDWR | os.O_CREAT, 0o600)  # noqa: PTH118
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError):  # Linux only: elsewhere what leaves its session is not our child
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Supervisor(folder).serve()


if __name__ == "__main__":
    main()
