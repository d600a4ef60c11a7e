"""Jobs as plain processes of this user: own session, own folder, limits on memory and processes. Not a wall.

The supervisor (see `supervisor.py`) is their parent, so they and their exit codes outlive the worker.
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
from collections.abc import Collection
from pathlib import Path
from typing import Any

from msgspec.json import decode, encode

from deborgen_shared.states import RunAs
from deborgen_worker import host, leases
from deborgen_worker.attempts import Exit, Standing
from deborgen_worker.folders import BLANK, OUTPUT
from deborgen_worker.logs import Log, RawLog
from deborgen_worker.runners import supervisor
from deborgen_worker.runners.lanes import Lanes
from deborgen_worker.runners.protocol import CannotStart, Host, Launch, RunnerDown, Tell
from deborgen_worker.runners.watchdog import BACKSTOP_SECONDS, Watchdog
from deborgen_worker.sockets import short_path
from deborgen_worker.steps import Adopted, Began, Event, Exited, Returned

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 10.0
LATER_MOST = 64


class SubprocessRunner:
    """Talks to the supervisor over its socket; a thread listens for what ended."""

    name = "subprocess"

    def __init__(self, state: Path, tell: Tell) -> None:
        self._state, self._tell = state, tell
        self._sending = threading.Lock()
        #: Guarded by a lock of its own, which is held while messages about lanes are sent: so they come in order.
        self._lanes = Lanes(int(leases.clock() * 1000))
        self._laning = threading.RLock()
        self._connecting = threading.Lock()
        self._socket: socket.socket | None = None
        self._limits: dict[str, int] = {}
        self._watched: set[str] = set()
        self._asked: dict[str, tuple[threading.Event, list[dict[str, Any]]]] = {}
        self._listed: tuple[threading.Event, list[str]] = (threading.Event(), [])
        self._closing = False
        self._later: list[bytes] = []
        #: The same supervisor watches over containers.
        self.watchdog = Watchdog(self._quietly, self.check, self.close)
        self._connect()

    # The promise of a runner

    def check(self) -> str:
        if self._socket is None and not self._closing:
            with contextlib.suppress(RunnerDown, OSError):
                self._connect()
        return "" if self._socket is not None else "its supervisor does not answer"

    def describe(self) -> Host:
        found = Host(labels={RunAs.PROCESS.label: True, RunAs.PROCESS.first_label: True})
        if not host.LIMITS_MEMORY:
            found.labels["limits.subprocess.memory"] = False
        if os.geteuid() == 0:
            found.labels["limits.subprocess.pids"] = False
            found.warnings.append("plain processes of root: the kernel enforces no limit on their number")
        found.warnings.append(
            "plain processes see this user's files and the network: allow them only for people you trust"
        )
        return found

    def prepare(self, launch: Launch) -> None:
        """Nothing to do ahead."""

    def start(self, launch: Launch) -> None:
        self.start_all([launch])

    def start_all(self, launches: list[Launch]) -> None:
        with self._laning:
            now = time.monotonic()
            self._spawn([(launch, self._lanes.open(launch, now)) for launch in launches])

    def follow(self, launches: list[Launch]) -> None:
        with self._laning:
            self._lanes.backlog |= {launch.attempt: launch for launch in launches}
            events: list[Event] = []
            self._top_up(events)
        self._tell(events)

    def recall(self, attempt: str) -> None:
        with self._laning:
            waits_here = self._lanes.backlog.pop(attempt, None) is not None
        if waits_here:
            self._tell([Returned(attempt)])
        else:
            self._quietly({"do": "recall", "attempt": attempt})

    def _spawn(self, launches: list[tuple[Launch, str]]) -> None:
        """Have these started, each in its lane: at once if nothing runs there, else in its turn."""
        if not launches:
            return
        # The kernel counts all processes of the user, so what is there already comes on top of a job's own.
        others = host.own_processes() if os.geteuid() != 0 else 0
        messages = []
        for launch, lane in launches:
            if launch.image:
                raise CannotStart("a job with an image needs Podman, which is not offered here")
            messages.append(
                {
                    "do": "spawn",
                    "attempt": launch.attempt,
                    "lane": lane,
                    "argv": launch.argv,
                    "env": {**launch.env, "DEBORGEN_ATTEMPT_ID": launch.attempt},
                    "cwd": str(launch.workspace),
                    "output": f"{launch.folder}/{OUTPUT}",
                    "blank": f"{launch.folder}/{BLANK}",
                    "limits": self._limits_of(launch, others),
                    "timeout": launch.timeout_seconds + BACKSTOP_SECONDS,
                    "start_by": launch.start_by,
                }
            )
        names = [launch.attempt for launch, _ in launches]
        self._watched.update(names)
        try:
            self._send(*messages)
        except RunnerDown:
            self._watched.difference_update(names)
            for name in names:
                self._lanes.drop(name)
            raise

    def adopt(self, launch: Launch) -> Adopted:
        asked = self._asked[launch.attempt] = (threading.Event(), [])
        self._watched.add(launch.attempt)
        self._send({"do": "adopt", "attempt": launch.attempt})
        if not asked[0].wait(ANSWER_SECONDS):
            raise RunnerDown("the supervisor does not answer")
        del self._asked[launch.attempt]
        record = asked[1][0]
        if record["standing"] == "unknown":
            self._watched.discard(launch.attempt)
            begun = (launch.folder / OUTPUT).exists()
            return Adopted(launch.attempt, Standing.GONE if begun else Standing.NEVER_STARTED)
        frozen, stopped = record.get("frozen", False), record.get("stopped", 0.0)
        return Adopted(launch.attempt, Standing(record["standing"]), frozen, stopped)

    def signal(self, attempt: str, name: str) -> None:
        with self._laning:
            self._lanes.close(attempt, name != "CONT")
            waits_here = self._lanes.backlog.pop(attempt, None) is not None
        if waits_here:
            return self._tell([Exited(attempt, Exit(error="it was ended before it was started"))])
        return self._quietly({"do": "signal", "attempt": attempt, "signal": int(getattr(signal, f"SIG{name}"))})

    def freeze(self, attempt: str) -> None:
        self.signal(attempt, "STOP")

    def thaw(self, attempt: str) -> None:
        self.signal(attempt, "CONT")

    def log(self, launch: Launch) -> Log:
        return RawLog(launch.folder / OUTPUT)

    def discard(self, attempt: str) -> None:
        message = {"do": "discard", "attempt": attempt}
        with self._laning:
            self._lanes.backlog.pop(attempt, None)
        if attempt in self._watched:
            self._quietly(message)
            return
        # It is over: there is no hurry, so it goes with the next message.
        with self._sending:
            self._later.append(encode(message) + b"\n")
            few = len(self._later) < LATER_MOST
        if not few:
            self._quietly({"do": "list"})

    def sweep(self, keep: Collection[str]) -> list[str]:
        self._listed = (threading.Event(), [])
        self._send({"do": "list"})
        if not self._listed[0].wait(ANSWER_SECONDS):
            raise RunnerDown("the supervisor does not answer")
        gone = [attempt for attempt in self._listed[1] if attempt not in keep]
        for attempt in gone:
            self.discard(attempt)
        return gone

    def close(self) -> None:
        self._closing = True
        self._quietly({"do": "quit"})
        with self._sending:
            line, self._socket = self._socket, None
        if line is not None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    # The line to the supervisor

    @staticmethod
    def _limits_of(launch: Launch, others: int) -> dict[str, int]:
        wanted = {}
        if launch.disk:
            wanted["RLIMIT_FSIZE"] = launch.disk
        if launch.memory and host.LIMITS_MEMORY:
            wanted["RLIMIT_AS"] = max(launch.memory, 64 << 20)
        if os.geteuid() != 0:
            wanted["RLIMIT_NPROC"] = launch.pids + others
        return wanted

    def _connect(self) -> None:
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
                    raise RunnerDown("the supervisor of plain processes cannot be started")
                # It may have ended because its predecessor was not quite gone: then it is started again.
                if child is None or child.poll() is not None:
                    child = self._start_supervisor()
                time.sleep(0.01)
            self._socket = found[0]
            self.watchdog.renew()
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
                env={name: os.environ[name] for name in ("PATH", "DEBORGEN_TAKE_UP_SECONDS") if name in os.environ},
            )  # fmt: skip
        threading.Thread(target=child.wait, name="supervisor-wait", daemon=True).start()
        return child

    def _send(self, *messages: dict[str, Any]) -> None:
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

    def _quietly(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(RunnerDown):
            self._send(message)

    def _listen(self, line: socket.socket, said: bytes) -> None:
        rest, data = b"", said
        while data:
            *lines, rest = (rest + data).split(b"\n")
            events: list[Event] = []
            with self._laning:
                for each in lines:
                    self._read(decode(each), events)
                self._top_up(events)
            if events:
                self._pass_on(events)
            try:
                data = line.recv(1 << 20)
            except OSError:
                break
        self._lost_line()

    def _pass_on(self, events: list[Event]) -> None:
        """A fault in what is told must not end this thread: nobody would hear of any other end."""
        try:
            self._tell(events)
        except Exception:
            traceback.print_exc()

    def _read(self, record: dict[str, Any], events: list[Event]) -> None:
        if "exit" in record:
            attempt = record["exit"]
            if attempt in self._watched:
                self._watched.discard(attempt)
                returned = record.get("recalled", False)
                events.append(Returned(attempt) if returned else Exited(attempt, self._exit(record)))
                self._go_on(attempt, record.get("seconds"), events)
            else:
                self.watchdog.hear(record)
        elif "standing" in record:
            self.watchdog.hear(record)
            event, answer = self._asked.get(record["attempt"], (threading.Event(), []))
            answer.append(record)
            event.set()
        elif "list" in record:
            self._listed[1].extend(record["list"])
            self._listed[0].set()

    def _go_on(self, attempt: str, seconds: float | None, events: list[Event]) -> None:
        """It has left its lane: the next one there has begun, or begins now."""
        following = self._lanes.leave(attempt, time.monotonic(), seconds)
        if following is not None:
            name, lane = following
            spawned = not lane or self._spawn_or_return([(self._lanes.launch_of(name), lane)], events)
            events += [Began(name)] if spawned else []

    def _top_up(self, events: list[Event]) -> None:
        """Fill the lanes from the backlog. What nothing is left for to follow is given back."""
        if self._lanes.backlog and not self._lanes.lane_of:
            events += [Returned(attempt) for attempt in self._lanes.backlog]
            self._lanes.backlog.clear()
        self._spawn_or_return(self._lanes.place(time.monotonic()), events)

    def _spawn_or_return(self, launches: list[tuple[Launch, str]], events: list[Event]) -> bool:
        try:
            self._spawn(launches)
        except RunnerDown:
            events += [Returned(launch.attempt) for launch, _ in launches]
            return False
        return True

    def _exit(self, record: dict[str, Any]) -> Exit:
        number = record.get("signal")
        reason = record.get("reason", "")
        if number is not None:
            with contextlib.suppress(ValueError):
                reason = f"killed by {signal.Signals(number).name}"
        return Exit(
            code=record.get("code"),
            timed_out=record.get("timed_out", False),
            error=record.get("error", ""),
            reason=reason,
            seconds=record.get("seconds"),
            cpu_seconds=record.get("cpu"),
            peak_memory=record.get("rss"),
        )

    def _lost_line(self) -> None:
        """The supervisor is gone: what it watched has no known end. Its successor ends what is left of them."""
        with self._sending:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
        if self._closing:
            return
        lost, self._watched = list(self._watched), set()
        with self._laning:
            events: list[Event] = [Returned(attempt) for attempt in self._lanes.backlog]
            self._lanes.backlog.clear()
            self._lanes.lane_of.clear()
        with contextlib.suppress(RunnerDown, OSError):
            self._connect()
        killed = Exit(error="the supervisor of plain processes was killed")
        self._pass_on(events + [Exited(attempt, killed) for attempt in lost])
