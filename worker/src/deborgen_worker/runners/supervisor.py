"""Watches over all programs of a worker, and outlives it. It is the parent of plain processes, so no exit code is lost.

It is a program of its own (`python -I -S supervisor.py STATE_DIR`), with the standard library alone, one thread and a
few megabytes. A worker connects to its socket, tells it what to start, and is told what ended. What ended is also a
line in `supervisor.jsonl`, which its successor reads should it be killed; what it left running is known by its
environment. Of a container it knows the commands that end, stop and wake it, and how much time it may use.

It ends what has used up its time, and everything when no worker has come for two minutes. While there is no worker, the
owner's commands come here. With nothing to watch it leaves by itself, but not with `--stay`, as in its own container.
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

if not __package__:  # `-I -S` keeps our packages from being found
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100

from deborgen_worker.runners.processes import Processes, end_left_running
from deborgen_worker.runners.programs import NEVER, Program

IDLE_SECONDS = 30.0
#: What no worker takes up within this time is ended. A test may make it shorter.
TAKE_UP_SECONDS = float(os.environ.get("DEBORGEN_TAKE_UP_SECONDS", "120"))
JOURNAL_BYTES = 1 << 20
PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """Has programs by attempt in `running`, and in `ended` the records of ends that no worker has written down yet."""

    def __init__(self, folder: str, stay: bool = False) -> None:
        os.chdir(folder)
        os.umask(0o022)
        self.stay = stay
        self.running: dict[str, Program] = {}
        self.ended: dict[str, dict[str, Any]] = {}
        self.processes = Processes(self.running, self.over, self.give_back)
        self.client: socket.socket | None = None
        self.inbox = b""
        self.outbox: list[bytes] = []
        self.due = NEVER
        self.idle_since = time.monotonic()
        self.journal = os.open("supervisor.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with open("supervisor.jsonl", "rb") as file:  # noqa: PTH123
            for line in file:
                with contextlib.suppress(ValueError, LookupError, TypeError):
                    record = json.loads(line)
                    self.ended[record["exit"]] = record
        end_left_running()

    # What the worker and the owner ask for

    def handle(self, ask: dict[str, Any]) -> None:
        attempt, number = ask.get("attempt", ""), ask.get("signal", 0)
        program, known = self.running.get(attempt), attempt in self.running or attempt in self.ended
        match ask["do"]:
            case "spawn" if not known:
                self.processes.ask(ask)
            case "watch":  # a container that the worker has started, or found again
                if not known:
                    self.running[attempt] = Program(ask)
                self.find(attempt)
            case "unwatch":
                self.running.pop(attempt, None)
                self.ended.pop(attempt, None)
            case "note" if program:
                program.note(number)
            case "signal" if program:
                program.send(number)
            case "signal" if number in {signal.SIGTERM, signal.SIGKILL} and self.processes.take_out(attempt):
                self.over(attempt, {"error": "it was ended before it was started"})
            case "recall" if self.processes.take_out(attempt):
                self.give_back(attempt)
            case "adopt":
                self.processes.take_out(attempt)  # it has not begun: the new worker starts it when its lease is alive
                self.find(attempt)
            case "discard":
                self.processes.take_out(attempt)
                self.ended.pop(attempt, None)
                if program:
                    program.unwanted = True
                    program.send(signal.SIGKILL)
                    if not program.pid:
                        del self.running[attempt]
            case "list":
                self.send({"list": [*self.running, *self.processes.waiting, *self.ended]})
            case "quit" if not self.running and not self.stay:
                sys.exit(0)

    def find(self, attempt: str) -> None:
        """Say what became of an attempt."""
        if end := self.ended.get(attempt):
            self.send({"standing": "ended", "attempt": attempt, "end": end})
            self.send(end)
        elif program := self.running.get(attempt):
            self.send({"standing": "running", "attempt": attempt, "frozen": program.frozen, "stopped": program.stopped})
        else:
            self.send({"standing": "unknown", "attempt": attempt})

    def obey(self, line: socket.socket) -> None:
        """Take one command of the owner's, while no worker is there, and answer it."""
        with line, contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            line.settimeout(1.0)
            do, now = json.loads(line.recv(4096))["do"], time.monotonic()
            for program in self.running.values():
                if do in {"pause", "resume"}:
                    program.send(signal.SIGSTOP if do == "pause" else signal.SIGCONT)
            programs = {name: [now - each.since - each.stopped, each.frozen] for name, each in self.running.items()}
            line.sendall(json.dumps({"programs": programs}).encode() + b"\n")

    # What ends

    def end_late(self) -> None:
        """End what has used up its time, and all that no worker takes up."""
        now = time.monotonic()
        alone = self.client is None and now >= self.idle_since + TAKE_UP_SECONDS
        for attempt, program in list(self.running.items()):
            if not program.end and (alone or now >= program.until):
                program.end = {"error": "no worker took it up in time"} if alone else {"timed_out": True}
                program.send(signal.SIGKILL)
                if not program.pid:
                    del self.running[attempt]
                    self.over(attempt, program.end)
        for attempt in list(self.processes.waiting) if alone else ():
            self.processes.take_out(attempt)

    def over(self, attempt: str, record: dict[str, Any], hold: float = 0.0, keep: bool = True) -> None:
        """Tell the worker of an end, at the latest after `hold` seconds, and keep it for the next one."""
        record["exit"] = attempt
        if keep:
            self.ended[attempt] = record
        line = self.send(record, hold)
        with contextlib.suppress(OSError):  # a full disk: the worker is told all the same
            os.write(self.journal, line)

    def give_back(self, attempt: str) -> None:
        self.send({"exit": attempt, "recalled": True})

    # The line to the worker

    def send(self, record: dict[str, Any], hold: float = 0.0) -> bytes:
        """Tell the worker, at the latest after `hold` seconds: what comes until then goes with it."""
        line = json.dumps(record).encode() + b"\n"
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
                self.drop()
        self.outbox.clear()
        self.due = NEVER
        if not self.running and not self.ended and os.fstat(self.journal).st_size > JOURNAL_BYTES:
            os.ftruncate(self.journal, 0)

    def drop(self, client: socket.socket | None = None) -> None:
        """The worker is gone, or another one takes its place."""
        if self.client is not None:
            self.client.close()
        self.client, self.inbox, self.idle_since = client, b"", time.monotonic()

    def receive(self, client: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = client.recv(1 << 20)
        if not data:
            self.drop()
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        for line in lines:
            self.handle(json.loads(line))

    def serve(self) -> None:
        listener, owner = listen("supervisor.sock"), listen("owner.sock")
        woken, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            now = time.monotonic()
            wait = min([self.due, *(program.until for program in self.running.values())]) - now
            if self.client is None and self.running:
                left = self.idle_since + TAKE_UP_SECONDS - now
                wait = min(wait, left if left > 0 else 1.0)  # after that, only the ends of what was killed are awaited
            elif self.client is None and not self.stay:
                left = self.idle_since + IDLE_SECONDS - now
                if left <= 0:
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
                client.settimeout(5.0)  # a worker that does not listen must not stop us for ever
                self.drop(client)
            if owner in ready:
                self.obey(owner.accept()[0])
            self.processes.reap()
            self.end_late()
            self.flush()


def listen(name: str) -> socket.socket:
    """A socket of this name in the folder in which we are, for this user alone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)  # noqa: PTH108
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(name)
    os.chmod(name, 0o600)  # noqa: PTH101
    found.listen(4)
    return found


def main(folder: str, *words: str) -> None:
    """There is one supervisor for a state directory. One that stays waits for its turn."""
    stay = "--stay" in words
    os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
    lock = os.open(os.path.join(folder, "supervisor.lock"), os.O_RDWR | os.O_CREAT, 0o600)  # noqa: PTH118
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if stay else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError):  # Linux only: elsewhere what leaves its session is not our child
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Supervisor(folder, stay).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
