"""Jobs as plain processes of this user: own session, own folder, limits on memory and processes. Not a wall.

The supervisor (see `supervisor.py`) is their parent, so they and their exit codes outlive the worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Collection

from deborgen_shared.states import RunAs
from deborgen_worker import host, leases
from deborgen_worker.attempts import Exit, Standing
from deborgen_worker.folders import BLANK, OUTPUT
from deborgen_worker.logs import Log, RawLog
from deborgen_worker.runners.lanes import Lanes
from deborgen_worker.runners.protocol import CannotStart, Host, Launch, RunnerDown, Tell
from deborgen_worker.runners.supervision import Record, Supervision, limit_of
from deborgen_worker.steps import Adopted, Began, Event, Exited, Returned


class SubprocessRunner:
    """Has the supervisor start programs, in lanes, and tells what became of them."""

    name = "subprocess"

    def __init__(self, supervision: Supervision, tell: Tell) -> None:
        self._supervision, self._tell = supervision, tell
        #: Guarded by a lock of its own, which is held while messages about lanes are sent: so they come in order.
        self._lanes = Lanes(int(leases.clock() * 1000))
        self._laning = threading.RLock()
        self._watched: set[str] = set()
        self.check, self.close = supervision.check, supervision.close
        supervision.hear, supervision.lost = self._hear, self._lost

    # The promise of a runner

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
            self._supervision.send_quietly({"do": "recall", "attempt": attempt})

    def adopt(self, launch: Launch) -> Adopted:
        self._watched.add(launch.attempt)
        record = self._supervision.ask({"do": "adopt", "attempt": launch.attempt})
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
            self._tell([Exited(attempt, Exit(error="it was ended before it was started"))])
        else:
            number = int(signal.Signals[f"SIG{name}"])
            self._supervision.send_quietly({"do": "signal", "attempt": attempt, "signal": number})

    def freeze(self, attempt: str) -> None:
        self.signal(attempt, "STOP")

    def thaw(self, attempt: str) -> None:
        self.signal(attempt, "CONT")

    def log(self, launch: Launch) -> Log:
        return RawLog(launch.folder / OUTPUT)

    def discard(self, attempt: str) -> None:
        with self._laning:
            self._lanes.backlog.pop(attempt, None)
        message = {"do": "discard", "attempt": attempt}
        if attempt in self._watched:
            self._supervision.send_quietly(message)
        else:  # it is over: there is no hurry
            self._supervision.send_later(message)

    def sweep(self, keep: Collection[str]) -> list[str]:
        found = self._supervision.ask({"do": "list"})
        gone = [attempt for attempt in found["list"] if attempt not in keep]
        self._supervision.send_quietly(*({"do": "discard", "attempt": attempt} for attempt in gone))
        return gone

    # What goes to the supervisor, and comes from it

    def _spawn(self, launches: list[tuple[Launch, str]]) -> None:
        """Have these started, each in its lane: at once if nothing runs there, else in its turn."""
        if any(launch.image for launch, _ in launches):
            raise CannotStart("a job with an image needs Podman, which is not offered here")
        names = {launch.attempt for launch, _ in launches}
        self._watched |= names
        try:
            if launches:
                self._supervision.send(*(_message(launch, lane) for launch, lane in launches))
        except RunnerDown:
            self._watched -= names
            for name in names:
                self._lanes.drop(name)
            raise

    def _spawn_or_return(self, launches: list[tuple[Launch, str]], events: list[Event]) -> bool:
        try:
            self._spawn(launches)
        except RunnerDown:
            events += [Returned(launch.attempt) for launch, _ in launches]
            return False
        return True

    def _hear(self, ends: list[Record]) -> None:
        events: list[Event] = []
        with self._laning:
            for record in ends:
                attempt = record["exit"]
                if attempt in self._watched:
                    self._watched.discard(attempt)
                    events.append(Returned(attempt) if "recalled" in record else Exited(attempt, _exit(record)))
                    self._go_on(attempt, record.get("seconds"), events)
            self._top_up(events)
        if events:
            self._tell(events)

    def _go_on(self, attempt: str, seconds: float | None, events: list[Event]) -> None:
        """It has left its lane: the next one there has begun, or begins now."""
        following = self._lanes.leave(attempt, time.monotonic(), seconds)
        if following is not None:
            name, lane = following
            if not lane or self._spawn_or_return([(self._lanes.launch_of(name), lane)], events):
                events.append(Began(name))

    def _top_up(self, events: list[Event]) -> None:
        """Fill the lanes from the backlog. What nothing is left for to follow is given back."""
        if not self._lanes.lane_of:
            events += [Returned(attempt) for attempt in self._lanes.backlog]
            self._lanes.backlog.clear()
        self._spawn_or_return(self._lanes.place(time.monotonic()), events)

    def _lost(self) -> None:
        """The supervisor is gone: what it watched has no known end. Its successor ends what is left of them."""
        killed = Exit(error="the supervisor of plain processes was killed")
        lost, self._watched = list(self._watched), set()
        with self._laning:
            events: list[Event] = [Returned(attempt) for attempt in self._lanes.backlog]
            self._lanes.backlog.clear()
            self._lanes.lane_of.clear()
        self.check()
        self._tell(events + [Exited(attempt, killed) for attempt in lost])


def _message(launch: Launch, lane: str) -> Record:
    limits = {"RLIMIT_FSIZE": launch.disk} if launch.disk else {}
    if launch.memory and host.LIMITS_MEMORY:
        limits["RLIMIT_AS"] = max(launch.memory, 64 << 20)
    if os.geteuid() != 0:
        # The kernel counts all processes of the user, so what is there already comes on top of a job's own.
        limits["RLIMIT_NPROC"] = launch.pids + host.own_processes()
    return {
        "do": "spawn",
        "attempt": launch.attempt,
        "lane": lane,
        "argv": launch.argv,
        "env": {**launch.env, "DEBORGEN_ATTEMPT_ID": launch.attempt},
        "cwd": str(launch.workspace),
        "output": f"{launch.folder}/{OUTPUT}",
        "blank": f"{launch.folder}/{BLANK}",
        "limits": limits,
        "timeout": limit_of(launch),
        "start_by": launch.start_by,
    }


def _exit(record: Record) -> Exit:
    reason = record.get("reason", "")
    with contextlib.suppress(ValueError, KeyError):
        reason = f"killed by {signal.Signals(record['signal']).name}"
    return Exit(
        code=record.get("code"),
        timed_out=record.get("timed_out", False),
        error=record.get("error", ""),
        reason=reason,
        seconds=record.get("seconds"),
        cpu_seconds=record.get("cpu"),
        peak_memory=record.get("rss"),
    )
