"""The worker's connection to its supervisor, which is started if none is running. Both sides send lines of JSON.

The supervisor is the parent of plain processes. Containers are not its children, but the worker tells it about them.
While the worker is dead, the supervisor ends a container at its time limit, or if no worker comes back, and freezes and
wakes containers at the owner's command.
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
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.json import decode, encode

from deborgen_worker.runners import supervisor
from deborgen_worker.runners.protocol import Launch, RunnerDown
from deborgen_worker.sockets import short_path

#: If the worker has not ended a program at its time limit, the supervisor does so this many seconds later. A test may
#: shorten this.
BACKSTOP_SECONDS = float(os.environ.get("DEBORGEN_BACKSTOP_SECONDS", "30"))
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 10.0
#: Hold back at most this many messages that are not urgent.
MAX_DEFERRED = 64
#: Answers are matched by attempt. This is the key of an answer without an attempt.
ALL = "all"
#: Variables of the worker's environment that the supervisor, or a command that steers a container, may need.
ENVIRONMENT = (
    "PATH", "HOME", "XDG_RUNTIME_DIR", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "TMPDIR",
    "DEBORGEN_TAKE_UP_SECONDS",
)  # fmt: skip

Message = dict[str, Any]


def supervised_limit(launch: Launch) -> float:
    """The supervisor ends a program after it has run for this many seconds."""
    return launch.timeout_seconds + BACKSTOP_SECONDS


class Supervision:
    """A connection to the supervisor, with a thread that listens to it.

    With `apart` the supervisor runs in a container of its own, so the worker waits for it and does not start it.
    """

    def __init__(self, state: Path, apart: bool = False) -> None:
        self._state, self._apart = state, apart
        self._connecting, self._sending = threading.Lock(), threading.Lock()
        self._socket: socket.socket | None = None
        self._answers: dict[str, Future[Message]] = {}
        self._later: list[bytes] = []
        self._containers: dict[str, Message] = {}
        self._ends: dict[str, Message] = {}
        self._closing = False
        #: Called with the ends of processes, and when the supervisor is gone.
        self._on_ends: list[Callable[[list[Message]], object]] = []
        self._on_lost: list[Callable[[], object]] = []
        self.open()

    def listen(self, on_ends: Callable[[list[Message]], object], on_lost: Callable[[], object]) -> None:
        """Have a runner called with the ends of processes, its own and those of others, and when the supervisor is
        gone."""
        self._on_ends.append(on_ends)
        self._on_lost.append(on_lost)

    def check(self) -> str:
        """Why the supervisor cannot be reached; empty if it can."""
        if self._socket is None and not self._closing:
            with contextlib.suppress(RunnerDown, OSError):
                self.open()
        return "" if self._socket is not None else "its supervisor does not answer"

    def open(self) -> None:
        """Connect, and start a supervisor if none is running.

        The supervisor must also answer, because a supervisor that is being killed still accepts connections.
        """
        with self._connecting:
            if self._socket is not None:
                return
            end = time.monotonic() + CONNECT_SECONDS
            child: subprocess.Popen[bytes] | None = None
            while (found := self._connect(end)) is None:
                if time.monotonic() > end:
                    raise RunnerDown(f"its supervisor cannot be {'reached' if self._apart else 'started'}")
                # The new supervisor may have ended because its predecessor was still running. Then start it again.
                if not self._apart and (child is None or child.poll() is not None):
                    child = self._start_supervisor()
                time.sleep(0.01)
            self._socket = found[0]
            # A new supervisor does not know the containers yet.
            self.send_quietly(*(self._watch_message(attempt) for attempt in list(self._containers)))
            threading.Thread(target=self._listen, args=found, name="supervisor-line", daemon=True).start()

    def _connect(self, end: float) -> tuple[socket.socket, bytes] | None:
        """A connection to a supervisor that answers, with the data received so far; None if there is none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        received = b""
        try:
            connection.settimeout(max(0.1, end - time.monotonic()))
            with short_path(self._state / "supervisor.sock") as path:
                connection.connect(path)
            connection.sendall(encode({"do": "adopt", "attempt": ""}) + b"\n")  # no attempt, just to get an answer
            while b"\n" not in received:
                more = connection.recv(1 << 20)
                if not more:
                    raise ConnectionError
                received += more
            connection.settimeout(None)
            # Do not wait forever for a supervisor that does not read.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(ANSWER_SECONDS), 0))
        except OSError:
            connection.close()
            return None
        return connection, received

    def _start_supervisor(self) -> subprocess.Popen[bytes]:
        with open(self._state / "supervisor.log", "ab", opener=partial(os.open, mode=0o600)) as log:
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
                    self._socket.shutdown(socket.SHUT_RDWR)  # the listening thread closes it

    # Sending

    def send(self, *messages: Message) -> None:
        """Send messages. Raises `RunnerDown` if the supervisor does not accept them."""
        lines = [encode(message) + b"\n" for message in messages]
        with self._sending:
            if self._socket is None:
                raise RunnerDown("the supervisor does not answer")
            try:
                later, self._later = self._later, []
                self._socket.sendall(b"".join([*later, *lines]))
            except OSError as error:
                with contextlib.suppress(OSError):  # no message may follow one that was only partly sent
                    self._socket.shutdown(socket.SHUT_RDWR)
                raise RunnerDown(f"the supervisor does not answer: {error}") from None

    def send_quietly(self, *messages: Message) -> None:
        """Send messages, unless the supervisor is gone."""
        with contextlib.suppress(RunnerDown):
            self.send(*messages)

    def send_later(self, message: Message) -> None:
        """Send a message that is not urgent, together with the next one."""
        with self._sending:
            self._later.append(encode(message) + b"\n")
            many = len(self._later) >= MAX_DEFERRED
        if many:
            self.send_quietly()

    def ask(self, message: Message) -> Message:
        """Send a message and return the supervisor's answer. Raises `RunnerDown` if there is none."""
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

    def watch(self, launch: Launch, used: float, commands: dict[str, list[str]]) -> Message:
        """Have the supervisor watch a container. Returns the supervisor's answer; empty if it is gone.

        `commands` has a command per signal, which does to the container what the signal does to a process.
        """
        self._containers[launch.attempt] = {
            "do": "watch", "attempt": launch.attempt, "timeout": supervised_limit(launch), "verbs": commands,
            "since": time.monotonic() - used,
        }  # fmt: skip
        found: Message = {}
        with contextlib.suppress(RunnerDown):
            found = self.ask(self._watch_message(launch.attempt))
        self._ends |= {launch.attempt: found["end"]} if "end" in found else {}
        return found

    def _watch_message(self, attempt: str) -> Message:
        message = self._containers[attempt]
        return {**message, "used": time.monotonic() - message["since"]}

    def note_frozen(self, attempt: str, *, frozen: bool) -> None:
        """Tell the supervisor that a container was frozen or woken, so that it can stop the container's clock."""
        number = int(signal.SIGSTOP if frozen else signal.SIGCONT)
        self.send_quietly({"do": "note", "attempt": attempt, "signal": number})

    def unwatch(self, attempt: str) -> Message:
        """Stop watching a container that has ended. If the supervisor ended it, return fields for its `Exit`."""
        if self._containers.pop(attempt, None) is not None:
            self.send_quietly({"do": "unwatch", "attempt": attempt})
        end = self._ends.pop(attempt, {})
        return {name: end[name] for name in ("timed_out", "error") if name in end}

    # Listening

    def _listen(self, connection: socket.socket, data: bytes) -> None:
        rest = b""
        while data:
            *lines, rest = (rest + data).split(b"\n")
            ends = []
            for message in map(decode, lines):
                if message.get("exit") in self._containers:
                    self._ends[message["exit"]] = message
                elif "exit" in message:
                    ends.append(message)
                elif waiting := self._answers.pop(message.get("attempt", ALL), None):
                    waiting.set_result(message)
            for on_ends in self._on_ends if ends else ():
                self._call_safely(on_ends, ends)
            try:
                data = connection.recv(1 << 20)
            except OSError:
                break
        with self._sending:
            self._socket = None
            connection.close()
        for on_lost in () if self._closing else (*self._on_lost, self.check):
            self._call_safely(on_lost)

    @staticmethod
    def _call_safely(call: Callable[..., object], *what: list[Message]) -> None:
        """Call a function. A bug in it must not end this thread, because then nobody would notice further ends."""
        try:
            call(*what)
        except Exception:
            traceback.print_exc()
