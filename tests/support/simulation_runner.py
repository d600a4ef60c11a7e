"""Simulated programs, and the runner that runs them. They outlive the worker, as containers do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deborgen_shared.states import Cause
from deborgen_worker.attempts import Exit, Standing
from deborgen_worker.logs import Log
from deborgen_worker.runners.chains import Chains
from deborgen_worker.runners.protocol import CannotStart, Host, Launch, Report, RunnerDown, Unavailable
from deborgen_worker.steps import Adopted, AttemptEvent, Began, Exited, Returned

if TYPE_CHECKING:
    from support.simulation_machine import Machine


@dataclass
class Program:
    """What an attempt runs: how long it still needs, what it has written, and how it ended.

    At the time `since` it needed `left` of its `seconds`.
    """

    launch: Launch
    code: int
    output: bytes
    seconds: float
    left: float
    since: float
    ignores_term: bool
    running: bool = True
    frozen: bool = False
    exit: Exit | None = None
    broken: bool = False
    dying: bool = False

    def written(self, now: float) -> bytes:
        """What it has written by now: its output comes evenly, and the last byte at its end."""
        if not self.running and self.left <= 0:
            return self.output
        left = self.left if not self.running or self.frozen else self.left - (now - self.since)
        return self.output[: max(0, int(len(self.output) * (1 - max(0.001, left) / self.seconds)))]

    def halt(self, now: float, natural: bool = False) -> None:
        """Stop the program, for whatever reason."""
        if self.running:
            if not self.frozen:
                self.left = max(0.001, self.left - (now - self.since))
            if natural:
                self.left = 0.0
            self.running = False


class LiveLog:
    """The log of an attempt: what its program has written by now."""

    def __init__(self, machine: Machine, attempt: str) -> None:
        self._machine, self._attempt = machine, attempt

    def _data(self) -> bytes:
        program = self._machine.programs.get(self._attempt)
        if program is None:
            return self._machine.old_output.get(self._attempt, b"")
        return program.written(self._machine.clock())

    def size(self) -> int:
        return len(self._data())

    def read(self, offset: int, count: int) -> bytes:
        return self._data()[offset : offset + count]

    def forget(self, start: int, end: int) -> None:
        pass


class SimulatedRunner:
    """Runs simulated programs. They belong to the machine and outlive the worker, as containers do."""

    name = "subprocess"

    def __init__(self, machine: Machine, tell: Report) -> None:
        self._machine, self._tell = machine, tell
        self._chains = Chains(machine.world.next_id() * 1000)
        if machine.world.uses_chains:
            self._chains.seconds, self._chains.join_within = 100.0, 3600.0
        self.trouble = ""

    def check(self) -> str:
        return self.trouble

    def describe(self) -> Host:
        return Host(labels={"runner.subprocess": True})

    def prepare(self, launch: Launch) -> None:
        pass

    def start(self, launch: Launch) -> None:
        if self.trouble:
            raise RunnerDown(self.trouble)
        machine = self._machine
        if launch.attempt in machine.programs:
            return
        self._check_start()
        machine.start_program(launch)

    def start_all(self, launches: list[Launch]) -> None:
        self._check_start()
        for launch in launches:
            self._machine.start_in_chain(launch, self._chains.open(launch, self._machine.clock()), launch.start_by)

    def follow(self, launches: list[Launch]) -> None:
        self._check_start()
        self._chains.backlog |= {launch.attempt: launch for launch in launches}
        events: list[AttemptEvent] = []
        self._top_up(events)
        if events:
            self._tell(events)

    def _check_start(self) -> None:
        if self.trouble:
            raise RunnerDown(self.trouble)
        if self._machine.ill:
            raise Unavailable(Cause.WORKSPACE, "the workspace cannot be prepared")
        if self._machine.world.chance(self._machine.world.faults.start_fails):
            raise CannotStart("the image could not be pulled")

    def _top_up(self, events: list[AttemptEvent]) -> None:
        if not self._chains.chain_of:
            events += [Returned(attempt) for attempt in self._chains.backlog]
            self._chains.backlog.clear()
        for launch, chain in self._chains.assign(self._machine.clock()):
            self._machine.start_in_chain(launch, chain, launch.start_by)

    def ended(self, attempt: str, exit_: Exit | None) -> None:
        """The machine says that a program ended, or was given back before it began."""
        events: list[AttemptEvent] = [Returned(attempt) if exit_ is None else Exited(attempt, exit_)]
        following = self._chains.remove(attempt, self._machine.clock(), 0.001)
        if following is not None:
            name, chain = following
            if chain:
                launch = self._chains.launch_of(name)
                self._machine.start_in_chain(launch, chain, launch.start_by)
            events.append(Began(name))
        self._top_up(events)
        self._tell(events)

    def recall(self, attempt: str) -> None:
        if self._chains.backlog.pop(attempt, None) is not None:
            self._tell([Returned(attempt)])
        elif self._machine.take_out(attempt):
            self._machine.tell_exit(attempt, None)

    def adopt(self, launch: Launch) -> Adopted:
        if self.trouble:
            raise RunnerDown(self.trouble)
        self._machine.take_out(launch.attempt)
        program = self._machine.programs.get(launch.attempt)
        if program is None:
            return Adopted(launch.attempt, Standing.NEVER_STARTED)
        if program.running:
            return Adopted(launch.attempt, Standing.RUNNING, program.frozen)
        # Podman shows a container that was running when the machine went down as created, with exit code 0.
        exit_ = Exit(code=0, seconds=0.0) if program.broken else program.exit or Exit(code=0)
        self._tell([Exited(launch.attempt, exit_)])
        return Adopted(launch.attempt, Standing.ENDED)

    def signal(self, attempt: str, name: str) -> None:
        self._chains.close(attempt)
        if self._chains.backlog.pop(attempt, None) is not None:
            self._tell([Exited(attempt, Exit(error="it was ended before it started"))])
        if self._machine.take_out(attempt):
            self._machine.tell_exit(attempt, Exit(error="it was ended before it started"))
        program = self._machine.programs.get(attempt)
        if program is None or not program.running:
            return
        if name == "KILL":
            self._machine.stop_program(attempt, Exit(code=137))
        elif not program.ignores_term and not program.dying:
            self._machine.let_die(program)

    def freeze(self, attempt: str) -> None:
        self._machine.freeze(attempt)

    def is_frozen(self, attempt: str) -> bool:
        return False

    def thaw(self, attempt: str) -> None:
        self._machine.thaw(attempt)

    def log(self, launch: Launch) -> Log:
        return LiveLog(self._machine, launch.attempt)

    def discard(self, attempt: str) -> None:
        self._chains.backlog.pop(attempt, None)
        self._machine.take_out(attempt)
        self._machine.remove_program(attempt)

    def cleanup(self, keep: Collection[str]) -> list[str]:
        waiting = [launch.attempt for queue in self._machine.chains.values() for _, launch in queue]
        gone = [attempt for attempt in [*waiting, *self._machine.programs] if attempt not in keep]
        for attempt in gone:
            self.discard(attempt)
        return gone

    def close(self) -> None:
        pass
