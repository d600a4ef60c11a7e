"""The worker's side of its supervisor, which is started if there is none. Each side sends lines of JSON.

The supervisor is the parent of plain processes. Of containers, which are not its children, it is told, so that it ends
one that has used up its time, or that no worker takes up, and freezes and wakes them at the owner's word while the
worker is dead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from msgspec.json import decode, encode

from deborgen_worker.runners import supervisor
from deborgen_worker.runners.protocol import Launch, RunnerDown
from deborgen_worker.sockets import short_path

#: How much longer than its time limit a program may run when the worker does not end it. A test may make it shorter.
BACKSTOP_SECONDS = float(os.environ.get("DEBORGEN_BACKSTOP_SECONDS", "30"))
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 10.0
#: At most this many messages wait for another one to go with.
LATER_MOST = 64
#: An answer is known by its attempt. One that is not about any is about all of them.
ALL = "all"
#: What the supervisor, and a command that steers a container, may need of the worker's environment.
ENVIRONMENT = (
    "PATH", "HOME", "XDG_RUNTIME_DIR", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "TMPDIR",
    "DEBORGEN_TAKE_UP_SECONDS",
)  # fmt: skip

Record = dict[str, Any]


def limit_of(launch: Launch) -> float:
    """After this many seconds of used time the supervisor ends a program."""
    return launch.timeout_seconds + BACKSTOP_SECONDS


class Supervision:
    """A connection to the supervisor, and a thread that listens to it.

    With `apart` the supervisor is waited for, and not started: it runs in a container of its own.
    """

    def __init__(self, state: Path, apart: bool = False) -> None:
        self._state, self._apart = state, apart
        self._connecting, self._sending = threading.Lock(), threading.Lock()
        self._socket: socket.socket | None = None
        self._answers: dict[str, Future[Record]] = {}
        self._later: list[bytes] = []
        self._containers: dict[str, Record] = {}
        self._ends: dict[str, Record] = {}
        self._closing = False
        #: Of the runner of plain processes: it hears of their ends, and that the supervisor is gone.
        self.hear: Callable[[list[Record]], None] = lambda ends: None
        self.lost: Callable[[], object] = self.check
        self.open()

    def check(self) -> str:
        """Why the supervisor cannot be reached; empty if it can."""
        if self._socket is None and not self._closing:
            with contextlib.suppress(RunnerDown, OSError):
                self.open()
        return "" if self._socket is not None else "its supervisor does not answer"

    def open(self) -> None:
        """Connect, and start a supervisor if there is none.

        To be connected is not enough: one that is just being killed still takes a connection. It must also answer.
        """
        with self._connecting:
            if self._socket is not None:
                return
            end = time.monotonic() + CONNECT_SECONDS
            child: subprocess.Popen[bytes] | None = None
            while (found := self._reach(end)) is None:
                if time.monotonic() > end:
                    raise RunnerDown(f"its supervisor cannot be {'reached' if self._apart else 'started'}")
                # It may have ended because its predecessor was not quite gone: then it is started again.
                if not self._apart and (child is None or child.poll() is not None):
                    child = self._start_supervisor()
                time.sleep(0.01)
            self._socket = found[0]
            # A new supervisor knows of no container yet.
            self.send_quietly(*(self._about(attempt) for attempt in list(self._containers)))
            threading.Thread(target=self._listen, args=found, name="supervisor-line", daemon=True).start()

    def _reach(self, end: float) -> tuple[socket.socket, bytes] | None:
        """A line to a supervisor that lives, and what it has said on it so far."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        said = b""
        try:
            line.settimeout(max(0.1, end - time.monotonic()))
            with short_path(self._state / "supervisor.sock") as path:
                line.connect(path)
            line.sendall(encode({"do": "adopt", "attempt": ""}) + b"\n")  # about nothing, just to be answered
            while b"\n" not in said:
                more = line.recv(1 << 20)
                if not more:
                    raise ConnectionError
                said += more
            line.settimeout(None)
            # Nobody may wait for ever for a supervisor that does not read.
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(ANSWER_SECONDS), 0))
        except OSError:
            line.close()
            return None
        return line, said

    def _start_supervisor(self) -> subprocess.Popen[bytes]:
        with (self._state / "supervisor.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, str(self._state)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
                env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            )  # fmt: skip
        threading.Thread(target=child.wait, name="supervisor-wait", daemon=True).start()
        return child

    def close(self) -> None:
        self._closing = True
        self.send_quietly({"do": "quit"})
        with self._sending:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # the thread that listens closes it

    # What is said

    def send(self, *messages: Record) -> None:
        """Raises `RunnerDown` if the supervisor does not take it."""
        lines = [encode(message) + b"\n" for message in messages]
        with self._sending:
            if self._socket is None:
                raise RunnerDown("the supervisor does not answer")
            try:
                later, self._later = self._later, []
                self._socket.sendall(b"".join([*later, *lines]))
            except OSError as error:
                with contextlib.suppress(OSError):  # a part of a message may be on its way: no other can follow
                    self._socket.shutdown(socket.SHUT_RDWR)
                raise RunnerDown(f"the supervisor does not answer: {error}") from None

    def send_quietly(self, *messages: Record) -> None:
        """A supervisor that is gone need not be told."""
        with contextlib.suppress(RunnerDown):
            self.send(*messages)

    def send_later(self, message: Record) -> None:
        """There is no hurry: it goes with the next message."""
        with self._sending:
            self._later.append(encode(message) + b"\n")
            many = len(self._later) >= LATER_MOST
        if many:
            self.send_quietly()

    def ask(self, message: Record) -> Record:
        """The supervisor's answer, which is about an attempt or about all. Raises `RunnerDown` if there is none."""
        key = message.get("attempt", ALL)
        answer = self._answers[key] = Future()
        try:
            self.send(message)
            return answer.result(ANSWER_SECONDS)
        except TimeoutError:
            raise RunnerDown("the supervisor does not answer") from None
        finally:
            self._answers.pop(key, None)

    # Containers

    def watch(self, launch: Launch, used: float, commands: dict[str, list[str]]) -> Record:
        """Have a container watched over, and find out what the supervisor knows of it: nothing, if it is gone.

        `commands` has for each signal the command that sends it.
        """
        self._containers[launch.attempt] = {
            "do": "watch", "attempt": launch.attempt, "timeout": limit_of(launch), "verbs": commands,
            "since": time.monotonic() - used,
        }  # fmt: skip
        found: Record = {}
        with contextlib.suppress(RunnerDown):
            found = self.ask(self._about(launch.attempt))
        self._ends |= {launch.attempt: found["end"]} if "end" in found else {}
        return found

    def _about(self, attempt: str) -> Record:
        message = self._containers[attempt]
        return {**message, "used": time.monotonic() - message["since"]}

    def note(self, attempt: str, *, frozen: bool) -> None:
        """The time of a container does not run while it is frozen."""
        number = int(signal.SIGSTOP if frozen else signal.SIGCONT)
        self.send_quietly({"do": "note", "attempt": attempt, "signal": number})

    def unwatch(self, attempt: str) -> Record:
        """A container has ended. If the supervisor has ended it, how: a part of its `Exit`."""
        if self._containers.pop(attempt, None) is not None:
            self.send_quietly({"do": "unwatch", "attempt": attempt})
        end = self._ends.pop(attempt, {})
        return {name: end[name] for name in ("timed_out", "error") if name in end}

    # What is heard

    def _listen(self, line: socket.socket, data: bytes) -> None:
        rest = b""
        while data:
            *lines, rest = (rest + data).split(b"\n")
            ends = []
            for record in map(decode, lines):
                if record.get("exit") in self._containers:
                    self._ends[record["exit"]] = record
                elif "exit" in record:
                    ends.append(record)
                elif waiting := self._answers.pop(record.get("attempt", ALL), None):
                    waiting.set_result(record)
            if ends:
                self._pass_on(self.hear, ends)
            try:
                data = line.recv(1 << 20)
            except OSError:
                break
        with self._sending:
            self._socket = None
            line.close()
        if not self._closing:
            self._pass_on(self.lost)

    @staticmethod
    def _pass_on(call: Callable[..., object], *what: list[Record]) -> None:
        """A fault in what is told must not end this thread: nobody would hear of any other end."""
        try:
            call(*what)
        except Exception:
            traceback.print_exc()
