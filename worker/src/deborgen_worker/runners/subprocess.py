"""Jobs as plain processes, each with its own session, its own folder, and limits on memory and processes.

How far they are isolated depends on the machine (see `isolation.py`). The supervisor (see `supervisor.py`) is their
parent, so they and their exit codes outlive the worker.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection

from deborgen_shared.states import RunAs
from deborgen_worker import host, leases
from deborgen_worker.attempts import Exit, Standing, StopCause
from deborgen_worker.folders import BLANK, OUTPUT
from deborgen_worker.logs import Log, RawLog
from deborgen_worker.runners.chains import Chains
from deborgen_worker.runners.exits import exit_of
from deborgen_worker.runners.isolation import LABEL, USER, Isolation
from deborgen_worker.runners.landlock import holds_read_only
from deborgen_worker.runners.protocol import CannotStart, Host, Launch, Report, RunnerDown
from deborgen_worker.runners.supervision import Message, Supervision, supervised_limit
from deborgen_worker.steps import Adopted, AttemptEvent, Began, Exited, Returned, StopAsked


class SubprocessRunner:
    """Makes the supervisor start programs, in chains, and reports what became of them."""

    name = "subprocess"

    def __init__(self, supervision: Supervision, report: Report, isolation: Isolation | None = None) -> None:
        self._supervision, self._report, self._isolation = supervision, report, isolation or Isolation()
        self._chains = Chains(int(leases.clock() * 1000))
        #: Held while messages about chains are sent, so that they arrive in order.
        self._chain_lock = threading.RLock()
        self._watched: set[str] = set()
        self.check, self.close = supervision.check, supervision.close
        supervision.listen(self._handle_ends, self._handle_loss)

    # The promises of `protocol.Runner`

    def describe(self) -> Host:
        found = Host(labels={RunAs.PROCESS.label: True, RunAs.PROCESS.old_label: True, LABEL: self._isolation.kind})
        if not host.LIMITS_MEMORY:
            found.labels["limits.subprocess.memory"] = False
        if os.geteuid() == 0 and self._isolation.kind != USER:
            found.labels["limits.subprocess.pids"] = False
            found.warnings.append("plain processes of root: the kernel enforces no limit on their number")
        if not self._isolation.cuts_network:
            found.labels["limits.subprocess.network"] = False
        found.warnings += self._isolation.notes
        return found

    def prepare(self, launch: Launch) -> None:
        """There is nothing to prepare."""

    def start(self, launch: Launch) -> None:
        self.start_all([launch])

    def start_all(self, launches: list[Launch]) -> None:
        with self._chain_lock:
            now = time.monotonic()
            self._spawn([(launch, self._chains.open(launch, now)) for launch in launches])

    def follow(self, launches: list[Launch]) -> None:
        with self._chain_lock:
            self._chains.backlog |= {launch.attempt: launch for launch in launches}
            events: list[AttemptEvent] = []
            self._top_up(events)
        self._report(events)

    def recall(self, attempt: str) -> None:
        with self._chain_lock:
            in_backlog = self._chains.backlog.pop(attempt, None) is not None
        if in_backlog:
            self._report([Returned(attempt)])
        else:
            self._supervision.send_quietly({"do": "recall", "attempt": attempt})

    def adopt(self, launch: Launch) -> Adopted:
        self._watched.add(launch.attempt)
        report = self._supervision.ask({"do": "adopt", "attempt": launch.attempt})
        if report["standing"] == "unknown":
            self._watched.discard(launch.attempt)
            begun = (launch.folder / OUTPUT).exists()
            return Adopted(launch.attempt, Standing.GONE if begun else Standing.NEVER_STARTED)
        frozen, stopped = report.get("frozen", False), report.get("stopped", 0.0)
        return Adopted(launch.attempt, Standing(report["standing"]), frozen, stopped)

    def signal(self, attempt: str, name: str) -> None:
        with self._chain_lock:
            self._chains.close(attempt, name != "CONT")
            in_backlog = self._chains.backlog.pop(attempt, None) is not None
        if in_backlog:
            self._report([Exited(attempt, Exit(error="it was ended before it started"))])
        else:
            number = int(signal.Signals[f"SIG{name}"])
            self._supervision.send_quietly({"do": "signal", "attempt": attempt, "signal": number})

    def freeze(self, attempt: str) -> None:
        self.signal(attempt, "STOP")

    def thaw(self, attempt: str) -> None:
        self.signal(attempt, "CONT")

    def is_frozen(self, attempt: str) -> bool:
        return bool(self._supervision.ask({"do": "adopt", "attempt": attempt}).get("frozen"))

    def log(self, launch: Launch) -> Log:
        return RawLog(launch.folder / OUTPUT)

    def discard(self, attempt: str) -> None:
        with self._chain_lock:
            self._chains.backlog.pop(attempt, None)
        message = {"do": "discard", "attempt": attempt}
        if attempt in self._watched:
            self._supervision.send_quietly(message)
        else:  # the program has ended, so this is not urgent
            self._supervision.send_later(message)

    def cleanup(self, keep: Collection[str]) -> list[str]:
        found = self._supervision.ask({"do": "list"})
        gone = [attempt for attempt in found["list"] if attempt not in keep]
        self._supervision.send_quietly(*({"do": "discard", "attempt": attempt} for attempt in gone))
        return gone

    # Messages to the supervisor and from it

    def _spawn(self, launches: list[tuple[Launch, str]]) -> None:
        """Make the supervisor start these programs, each in its chain: at once, or after the others in the chain."""
        if any(launch.shared and not launch.shared_write for launch, _ in launches) and not holds_read_only():
            raise CannotStart("this machine cannot keep a plain process from writing to a shared folder")
        if any(launch.image for launch, _ in launches):
            raise CannotStart("a job with an image needs Podman, which this worker does not offer")
        names = {launch.attempt for launch, _ in launches}
        self._watched |= names
        try:
            if launches:
                self._supervision.send(*(_message(launch, chain, self._isolation) for launch, chain in launches))
        except RunnerDown:
            self._watched -= names
            for name in names:
                self._chains.drop(name)
            raise

    def _spawn_or_return(self, launches: list[tuple[Launch, str]], events: list[AttemptEvent]) -> bool:
        try:
            self._spawn(launches)
        except RunnerDown:
            events += [Returned(launch.attempt) for launch, _ in launches]
            return False
        return True

    def _handle_ends(self, ends: list[Message]) -> None:
        events: list[AttemptEvent] = []
        with self._chain_lock:
            for report in ends:
                attempt = report["exit"]
                if attempt in self._watched:
                    self._watched.discard(attempt)
                    if report.get("terminated"):
                        events.append(StopAsked(attempt, StopCause.RELEASE, "the machine ended its processes"))
                    events.append(Returned(attempt) if "recalled" in report else Exited(attempt, exit_of(report)))
                    self._start_next(attempt, report.get("seconds"), events)
            self._top_up(events)
        if events:
            self._report(events)

    def _start_next(self, attempt: str, seconds: float | None, events: list[AttemptEvent]) -> None:
        """Note which program runs after an attempt has left its chain.

        If programs wait in the chain, the supervisor has already started the next one. Otherwise start a program of the
        backlog that fits.
        """
        following = self._chains.remove(attempt, time.monotonic(), seconds)
        if following is not None:
            name, chain = following
            if not chain or self._spawn_or_return([(self._chains.launch_of(name), chain)], events):
                events.append(Began(name))

    def _top_up(self, events: list[AttemptEvent]) -> None:
        """Fill the chains from the backlog. If no chain is left, give the backlog back."""
        if not self._chains.chain_of:
            events += [Returned(attempt) for attempt in self._chains.backlog]
            self._chains.backlog.clear()
        self._spawn_or_return(self._chains.assign(time.monotonic()), events)

    def _handle_loss(self) -> None:
        """The supervisor is gone, so nobody knows how its programs end. Its successor kills those that still run."""
        killed = Exit(error="the supervisor of plain processes was killed")
        lost, self._watched = list(self._watched), set()
        with self._chain_lock:
            events: list[AttemptEvent] = [Returned(attempt) for attempt in self._chains.backlog]
            self._chains.backlog.clear()
            self._chains.chain_of.clear()
        self.check()
        self._report(events + [Exited(attempt, killed) for attempt in lost])


def _message(launch: Launch, chain: str, isolation: Isolation) -> Message:
    limits = {"RLIMIT_FSIZE": launch.disk} if launch.disk else {}
    if launch.memory and host.LIMITS_MEMORY:
        limits["RLIMIT_AS"] = max(launch.memory, 64 << 20)
    if isolation.kind == USER:
        limits["RLIMIT_NPROC"] = launch.pids
    elif os.geteuid() != 0:
        # The kernel counts all processes of the user, so add those that exist already.
        limits["RLIMIT_NPROC"] = launch.pids + host.own_processes()
    return {
        "do": "spawn",
        "attempt": launch.attempt,
        "lane": chain,
        "argv": launch.argv,
        "env": {**launch.env_from_now(), "DEBORGEN_ATTEMPT_ID": launch.attempt},
        "cwd": str(launch.shared or launch.workspace),
        "own": str(launch.folder),
        "output": f"{launch.folder}/{OUTPUT}",
        "blank": f"{launch.folder}/{BLANK}",
        "limits": limits,
        "limit": launch.timeout_seconds,
        "timeout": supervised_limit(launch),
        "start_by": launch.start_by,
        "gives_way": launch.gives_way,
        **isolation.request(launch.workspace, launch.network),
        **({"read_only": [str(launch.shared)]} if launch.shared and not launch.shared_write else {}),
    }
