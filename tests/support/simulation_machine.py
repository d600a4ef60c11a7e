"""One machine of the simulation: a disk, a boot, programs that run, and the real worker in one life after the other.

The worker's parts are the product's own: agent, heartbeat loop, claimer, outbox, log pump, owner, recovery, spool. The
machine gives them a clock, a disk that can lose what was not flushed, a runner of simulated programs, and a network.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deborgen_shared.states import Phase
from deborgen_worker.attempts import Exit
from deborgen_worker.disk import Disk
from deborgen_worker.runners.protocol import Launch
from support.simulation_life import FOREVER, GIB, Crash, Life
from support.simulation_runner import Program

if TYPE_CHECKING:
    from support.simulation import World


class ForgetfulDisk(Disk):
    """Writes to files of this test, flushes nothing, and knows what a power failure would lose."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._durable: dict[int, int] = {}
        self.full = False

    def append(self, fd: int, data: bytes) -> None:
        if self.full and (self._machine.folder / "reserve").exists():  # once it is deleted, there is room again
            raise OSError(errno.ENOSPC, "No space left on device")
        if self._machine.world.dies("write", self._machine):
            os.write(fd, data[: self._machine.world.random.randrange(len(data) + 1)])
            raise Crash
        os.write(fd, data)

    def sync(self, fd: int) -> None:
        self._machine.world.die_at("sync", self._machine)
        found = os.fstat(fd)
        self._durable[found.st_ino] = found.st_size

    def sync_folder(self, folder: Path) -> None:
        pass

    def free(self, folder: Path) -> int:
        return 0 if self.full else 100 * GIB

    def lose_power(self, path: Path, chance: random.Random) -> None:
        """Cut off what was appended to the file since its last flush, or a part of it."""
        if not path.exists():
            return
        size = path.stat().st_size
        durable = self._durable.get(path.stat().st_ino, size)
        if durable < size:
            os.truncate(path, durable + chance.randrange(size - durable))


@dataclass
class Machine:
    """A volunteer's PC."""

    world: World
    name: str
    folder: Path
    boot: int = 1
    booted_at: float = 0.0
    life: Life | None = None
    starts_at: float = 0.0
    asleep_until: float = 0.0
    partition: str = ""
    #: Whether nothing can be started here.
    ill: bool = False
    programs: dict[str, Program] = field(default_factory=dict)
    old_output: dict[str, bytes] = field(default_factory=dict)
    #: The attempts that wait in each chain in which a program runs, and until when they may start. The supervisor keeps
    #: them, and outlives the worker.
    chains: dict[str, list[tuple[float, Launch]]] = field(default_factory=dict)
    chain_of: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.disk = ForgetfulDisk(self)

    def clock(self) -> float:
        """The machine's monotonic clock: it starts with the boot, and stands still while the machine sleeps."""
        return max(self.world.now, self.asleep_until) - self.booted_at

    def lease_clock(self) -> float:
        """A clock that also counts the time in which the machine sleeps."""
        return max(self.world.now, self.asleep_until)

    @property
    def awake(self) -> bool:
        return self.world.now >= self.asleep_until

    # Programs

    def start_program(self, launch: Launch) -> None:
        plan = self.world.plan(launch.attempt)
        self.world.truth.started(launch.attempt, self)
        self.programs[launch.attempt] = Program(
            launch,
            plan.code_in(launch.env),
            plan.output(launch.attempt),
            plan.seconds,
            plan.seconds,
            self.clock(),
            plan.ignores_term,
        )
        if plan.artifact:
            if made_by := self.world.work_before(launch.attempt):
                folder = "" if launch.env["DEBORGEN_PHASE"] == Phase.VERIFY else "inputs/previous"
                self.world.truth.found(launch.attempt, launch.workspace / folder / "out.txt", made_by)
            (launch.workspace / "out.txt").write_bytes(plan.artifact_bytes(launch.attempt))
        events = plan.events(launch.attempt)
        self._write_events(launch, events[: len(events) // 2])

    def _write_events(self, launch: Launch, types: list[str]) -> None:
        """The program appends events of its own to its file: half of them when it starts, the others when it ends."""
        if types:
            with Path(launch.env["DEBORGEN_EVENTS"]).open("a") as file:
                file.writelines(json.dumps({"type": type_}) + "\n" for type_ in types)
            self.world.truth.wrote_events(launch.attempt, types)

    def start_in_chain(self, launch: Launch, chain: str, start_by: float) -> None:
        if launch.attempt in self.programs or self.waits(launch.attempt):
            return
        if chain in self.chains:
            self.world.tell(f"{self.name}: {launch.attempt} waits in the chain {chain}")
            self.chains[chain].append((start_by, launch))
        else:
            self.chains[chain] = []
            self.chain_of[launch.attempt] = chain
            self.start_program(launch)

    def waits(self, attempt: str) -> bool:
        return any(launch.attempt == attempt for queue in self.chains.values() for _, launch in queue)

    def take_out(self, attempt: str) -> bool:
        """Take an attempt out of the chain in which it waits; returns whether it waited."""
        found = self.waits(attempt)
        for chain, queue in self.chains.items():
            self.chains[chain] = [each for each in queue if each[1].attempt != attempt]
        return found

    def start_next(self, ended: str) -> None:
        """Start the next program in the chain of the one that ended, unless its lease may be over."""
        chain = self.chain_of.pop(ended, None)
        if chain is None:
            return
        queue = self.chains[chain]
        late = [launch for start_by, launch in queue if self.lease_clock() > start_by]
        queue[:] = [each for each in queue if each[1] not in late]
        if queue:
            _, launch = queue.pop(0)
            self.chain_of[launch.attempt] = chain
            self.start_program(launch)
        else:
            del self.chains[chain]
        for launch in late:  # last, because the worker may crash here, and its machine too
            self.tell_exit(launch.attempt, None)

    def tell_exit(self, attempt: str, exit_: Exit | None) -> None:
        """Tell the worker that a program ended, or was given back before it began."""
        if self.life is not None:
            self.life.guard(lambda life: life.runner.ended(attempt, exit_))

    def next_exit(self) -> tuple[float, str]:
        """When, in the world's time, the next program ends, and its attempt."""
        found = [
            (self.booted_at + each.since + each.left, name)
            for name, each in self.programs.items()
            if each.running and not each.frozen
        ]
        when, name = min(found, default=(FOREVER, ""))
        return max(when, self.asleep_until), name

    def stop_program(self, attempt: str, exit_: Exit, natural: bool = False) -> None:
        program = self.programs[attempt]
        if natural:
            events = self.world.plan(attempt).events(attempt)
            self._write_events(program.launch, events[len(events) // 2 :])
        program.halt(self.clock(), natural)
        program.exit = exit_
        self.world.truth.ended(attempt, program.written(self.clock()), exit_.code if natural else None)
        self.start_next(attempt)
        self.tell_exit(attempt, exit_)

    def let_die(self, program: Program) -> None:
        """TERM was sent: it takes the program a moment to end."""
        if not program.frozen:
            program.left = max(0.001, program.left - (self.clock() - program.since))
        program.since, program.dying = self.clock(), True
        program.left = min(program.left, self.world.random.uniform(0.001, 3.0))

    def end_program(self, attempt: str) -> None:
        """The program ends: by itself, or because it was told to."""
        program = self.programs[attempt]
        self.stop_program(attempt, Exit(code=143 if program.dying else program.code), natural=not program.dying)

    def freeze(self, attempt: str) -> None:
        program = self.programs.get(attempt)
        if program is not None and program.running and not program.frozen:
            program.left -= self.clock() - program.since
            program.frozen = True

    def thaw(self, attempt: str) -> None:
        program = self.programs.get(attempt)
        if program is not None and program.frozen:
            program.frozen, program.since = False, self.clock()

    def remove_program(self, attempt: str) -> None:
        program = self.programs.pop(attempt, None)
        if program is not None:
            program.halt(self.clock())
            self.old_output[attempt] = program.written(self.clock())
            self.world.truth.ended(attempt, self.old_output[attempt], None)
            self.start_next(attempt)

    # Faults

    def start(self) -> None:
        self.world.acting = self
        try:
            self.life = Life(self)
        except Crash:
            return self.kill(1.0)
        return self.life.guard(lambda life: life.begin())

    def kill(self, away: float) -> None:
        """kill -9 the worker: its programs keep running."""
        if self.life is not None:
            self.life.spool.close()
        self.life = None
        self.starts_at = self.world.now + away

    def lose_power(self, away: float) -> None:
        self.disk.lose_power(self.folder / "journal", self.world.random)
        for attempt, program in self.programs.items():
            if program.running:
                program.halt(self.clock())
                program.broken = True
                self.world.truth.ended(attempt, program.written(self.clock()), None)
        self.chains, self.chain_of = {}, {}
        self.boot += 1
        self.asleep_until = 0.0
        self.booted_at = self.world.now + away - 10.0
        self.world.truth.rebooted(self)
        self.kill(away)

    def wipe(self) -> None:
        """Remove the spool and all programs, as a reinstallation does."""
        self.kill(0.0)
        self.chains, self.chain_of = {}, {}
        for attempt in list(self.programs):
            self.remove_program(attempt)
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.world.truth.rebooted(self)
        self.starts_at = self.world.now

    def sleep(self, seconds: float) -> None:
        """Suspend the machine: programs, worker and monotonic clock stand still."""
        if self.awake:
            self.asleep_until = self.world.now + seconds
            self.booted_at += seconds
