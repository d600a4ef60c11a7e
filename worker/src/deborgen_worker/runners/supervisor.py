"""The supervisor of a worker's programs, which outlives the worker. It is the parent of plain processes.

It is a program of its own (`python -I -S supervisor.py STATE_DIR`) that uses only the standard library, few megabytes,
and one thread besides those that only start programs (see `before_exec`). A worker connects to its socket, sends
requests, and receives a report of every program's end. The reports are also appended to `supervisor.jsonl`, which a
successor reads if the supervisor is killed. For containers, it has their time limits and the commands that end, freeze
and wake them.

It ends programs at their time limits, and all programs when no worker has connected for two minutes. While there is no
worker, it obeys the owner's commands. When no program is left it ends, except with `--stay`, as in its own container.
TERM, which a shutdown sends to all processes, ends it only together with its programs.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

if not __package__:  # with `-I -S` Python does not find our packages
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100

from deborgen_worker.runners.leftovers import end_leftovers
from deborgen_worker.runners.processes import Processes
from deborgen_worker.runners.programs import NEVER, Program
from deborgen_worker.sockets import is_from_program

IDLE_SECONDS = 30.0
#: End all programs if no worker connects for this many seconds. A test may shorten it.
TAKE_UP_SECONDS = float(os.environ.get("DEBORGEN_TAKE_UP_SECONDS", "120"))
#: For this many seconds after TERM, the machine is taken to be shutting down. systemd's own limit is the same.
SHUTDOWN_SECONDS = 90.0
JOURNAL_BYTES = 1 << 20
PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """`running` has the programs by attempt; `ended` has the reports that no worker has recorded yet."""

    def __init__(self, folder: str, stay: bool = False) -> None:
        os.chdir(folder)
        os.umask(0o022)
        self.stay = stay
        self.running: dict[str, Program] = {}
        self.ended: dict[str, dict[str, Any]] = {}
        self.processes = Processes(self.running, self.report_end, self.give_back)
        self.client: socket.socket | None = None
        self.inbox = b""
        self.outbox: list[bytes] = []
        self.due = NEVER
        self.idle_since = time.monotonic()
        self.quitting = False
        self.terminated_at = -NEVER
        self.journal = os.open("supervisor.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with open("supervisor.jsonl", "rb") as file:  # noqa: PTH123
            for line in file:
                with contextlib.suppress(ValueError, LookupError, TypeError):
                    report = json.loads(line)
                    self.ended[report["exit"]] = report
        end_leftovers()

    # Requests of the worker and the owner

    def handle(self, request: dict[str, Any]) -> None:
        attempt, number = request.get("attempt", ""), request.get("signal", 0)
        program, known = self.running.get(attempt), attempt in self.running or attempt in self.ended
        match request["do"]:
            case "spawn" if not known:
                self.processes.submit(request)
            case "watch":  # a container that the worker has started or adopted
                if not known:
                    self.running[attempt] = Program(request)
                self.report_standing(attempt)
            case "unwatch":
                self.running.pop(attempt, None)
                self.ended.pop(attempt, None)
            case "note" if program:
                program.note(number)
            case "signal" if program:
                program.send(number)
            case "signal" if number in {signal.SIGTERM, signal.SIGKILL} and self.processes.remove_waiting(attempt):
                self.report_end(attempt, {"error": "it was ended before it started"})
            case "recall" if self.processes.remove_waiting(attempt):
                self.give_back(attempt)
            case "adopt":
                self.processes.remove_waiting(attempt)  # the new worker starts it once its lease is renewed
                self.report_standing(attempt)
            case "discard":
                self.processes.remove_waiting(attempt)
                self.ended.pop(attempt, None)
                if program:
                    program.unwanted = True
                    program.send(signal.SIGKILL)
                    if not program.pid:
                        del self.running[attempt]
            case "list":
                self.send({"list": [*self.running, *self.processes.waiting, *self.ended]})
            case "quit":
                self.quitting = not self.stay and all(each.unwanted or each.end for each in self.running.values())

    def report_standing(self, attempt: str) -> None:
        """Tell the worker what became of an attempt."""
        if end := self.ended.get(attempt):
            self.send({"standing": "ended", "attempt": attempt, "end": end})
            self.send(end)
        elif program := self.running.get(attempt):
            self.send({"standing": "running", "attempt": attempt, "frozen": program.frozen, "stopped": program.stopped})
        else:
            self.send({"standing": "unknown", "attempt": attempt})

    def answer_owner(self, line: socket.socket) -> None:
        """Carry out a command of the owner, and answer with the programs as they were before. The owner asks here while
        there is no worker."""
        with line, contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            if is_own_program(line):
                return
            line.settimeout(1.0)
            do, now = json.loads(line.recv(4096))["do"], time.monotonic()
            programs = {name: [now - each.since - each.stopped, each.frozen] for name, each in self.running.items()}
            for program in self.running.values():
                if do in {"pause", "resume"}:
                    program.send(signal.SIGSTOP if do == "pause" else signal.SIGCONT)
            if do == "stop":
                self.end_all("its owner stopped the worker")
                self.quitting = not self.stay
            line.sendall(json.dumps({"programs": programs, "stays": self.stay}).encode() + b"\n")

    # Ends

    def end_overdue(self) -> None:
        """End programs that have reached their time limit, and all programs if no worker has connected for too long."""
        now = time.monotonic()
        if self.client is None and self.shutting_down:
            self.end_all("this machine ended its processes")
            self.quitting = True
        elif self.client is None and now >= self.idle_since + TAKE_UP_SECONDS:
            self.end_all("no worker came back for it in time")
        for attempt, program in list(self.running.items()):
            if now >= program.until:
                self.end(attempt, program, {"timed_out": True})

    def end_all(self, reason: str) -> None:
        """End all programs, and forget those that wait."""
        for attempt, program in list(self.running.items()):
            self.end(attempt, program, {"error": reason})
        for attempt in list(self.processes.waiting):
            self.processes.remove_waiting(attempt)

    def end(self, attempt: str, program: Program, end: dict[str, Any]) -> None:
        """End a program. The report of a process follows when it has ended, that of a container at once."""
        if program.end:
            return
        program.end = end
        program.send(signal.SIGKILL)
        if not program.pid:
            del self.running[attempt]
            self.report_end(attempt, program.end)

    def report_end(self, attempt: str, report: dict[str, Any], hold: float = 0.0, keep: bool = True) -> None:
        """Report a program's end to the worker within `hold` seconds, and keep the report for the next worker."""
        report["exit"] = attempt
        if report.get("code") and self.shutting_down:
            report["terminated"] = True  # it has most likely received TERM too
        if keep:
            self.ended[attempt] = report
        line = self.send(report, hold)
        with contextlib.suppress(OSError):  # even if the disk is full, the worker gets the report
            os.write(self.journal, line)

    def give_back(self, attempt: str) -> None:
        self.send({"exit": attempt, "recalled": True})

    # The connection to the worker

    def send(self, report: dict[str, Any], hold: float = 0.0) -> bytes:
        """Send a line to the worker within `hold` seconds, together with lines that follow until then."""
        line = json.dumps(report).encode() + b"\n"
        self.outbox.append(line)
        self.due = min(self.due, time.monotonic() + hold)
        return line

    def flush(self) -> None:
        if self.due > time.monotonic():
            return
        if self.client is not None:
            try:
                self.client.sendall(b"".join(self.outbox))
            except OSError:
                self.replace_client()
        self.outbox.clear()
        self.due = NEVER
        if not self.running and not self.ended and os.fstat(self.journal).st_size > JOURNAL_BYTES:
            os.ftruncate(self.journal, 0)

    def replace_client(self, client: socket.socket | None = None) -> None:
        """Close the worker's connection, and use the next worker's if there is one."""
        if self.client is not None:
            self.client.close()
        self.client, self.inbox, self.idle_since = client, b"", time.monotonic()
        self.quitting = self.quitting and client is None

    def receive(self, client: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = client.recv(1 << 20)
        if not data:
            self.replace_client()
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        for line in lines:
            self.handle(json.loads(line))

    def terminate(self, _number: int, _frame: object) -> None:
        self.terminated_at = time.monotonic()

    @property
    def shutting_down(self) -> bool:
        return time.monotonic() < self.terminated_at + SHUTDOWN_SECONDS

    def serve(self) -> None:
        listener, owner = listen("supervisor.sock"), listen("owner.sock")
        woken, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if not self.stay:
            signal.signal(signal.SIGTERM, self.terminate)
        while True:
            now = time.monotonic()
            wait = min([self.due, *(program.until for program in self.running.values())]) - now
            if self.client is None and self.running:
                left = self.idle_since + TAKE_UP_SECONDS - now
                wait = min(wait, left if left > 0 else 1.0)  # later, wait for the killed programs to end
            elif self.client is None and not self.stay:
                left = self.idle_since + IDLE_SECONDS - now
                if left <= 0 or self.quitting:
                    return
                wait = min(wait, left)
            sockets = [listener, owner, woken] + ([self.client] if self.client else [])
            ready, _, _ = select.select(sockets, [], [], None if wait == NEVER else max(0.0, wait))
            if woken in ready:
                woken.recv(4096)
            if self.client in ready:
                self.receive(self.client)
            if listener in ready:
                client, _ = listener.accept()
                client.settimeout(5.0)  # a worker that does not read must not block us forever
                if not is_own_program(client):
                    self.replace_client(client)
            if owner in ready:
                self.answer_owner(owner.accept()[0])
            self.processes.reap()
            self.end_overdue()
            self.flush()


def listen(name: str) -> socket.socket:
    """A listening socket of this name in the current folder, which only this user can use."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)  # noqa: PTH108
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(name)
    os.chmod(name, 0o600)  # noqa: PTH101
    found.listen(4)
    return found


def is_own_program(line: socket.socket) -> bool:
    return is_from_program(line, os.getpid().__eq__)


def main(folder: str, *words: str) -> None:
    """Run the only supervisor of a state directory. If another one is running, end; with `--stay`, wait for its end."""
    stay = "--stay" in words
    os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
    lock = os.open(os.path.join(folder, "supervisor.lock"), os.O_RDWR | os.O_CREAT, 0o600)  # noqa: PTH118
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if stay else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError):  # only Linux makes orphaned processes our children
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Supervisor(folder, stay).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
