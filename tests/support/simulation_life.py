"""One life of the real worker in the simulation: its parts as its daemon wires them, with steps in place of threads."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.messages import Register
from deborgen_shared.states import RunAs
from deborgen_worker import policy, recovery
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import LocalAttempt, StopCause
from deborgen_worker.cache import BlobCache
from deborgen_worker.capacity import Amount, Ledger
from deborgen_worker.claims import Claimer, Claims
from deborgen_worker.contact import Contact, Link
from deborgen_worker.heartbeat import HeartbeatLoop, Superseded
from deborgen_worker.log_pump import LogPump
from deborgen_worker.outbox import Outbox, ResultQueue
from deborgen_worker.owner import Owner
from deborgen_worker.runners.protocol import Report, Runner
from deborgen_worker.settings import WorkerSettings
from deborgen_worker.spool import Spool
from support.simulation_runner import SimulatedRunner

if TYPE_CHECKING:
    from support.simulation_machine import Machine

GIB = 2**30
FOREVER = float("inf")


class Crash(BaseException):
    """The worker's process dies at this point. No code of the worker may catch it."""


class Life:
    """One life of the worker's process, as the daemon wires it, with steps in place of threads."""

    def __init__(self, machine: Machine) -> None:
        self.machine, world = machine, machine.world
        self.session = f"{machine.name}-{world.next_id()}"
        self.coordinator = world.network.client(machine)
        settings = WorkerSettings(name=machine.name, state_dir=str(machine.folder), cpus=2.0, min_free_disk=0)
        self.contact = Contact(machine.clock, self._say, self._wake_all, random.Random(world.random.random()))
        self.link = Link(self.coordinator, self.contact, self.session, self._say)
        self.spool = Spool(machine.folder, machine.disk, str(machine.boot))
        self.results = ResultQueue()
        self.due: dict[str, float] = {}
        cache = BlobCache(machine.folder / "cache", GIB, self.coordinator.download)
        self.agent = Agent(
            settings, self.spool, cache, Amount(2.0, 16 * GIB, 0, 100 * GIB), self._runners,
            clock=machine.clock, lease_clock=machine.lease_clock, say=self._say, run_slow=lambda work: work(),
            on_room=self._room, on_results=self.results.put,
            on_gate=lambda: self.due_now("heartbeat"),
        )  # fmt: skip
        if world.uses_chains:
            self.ledger.short_seconds = self.ledger.chain_below_seconds = 3600.0
        self.heartbeats = HeartbeatLoop(self.agent, self.link)
        claims = Claims(self.agent, self.spool, new_id=lambda: f"r{world.next_id()}")
        self.outbox = Outbox(self.agent, self.spool, self.link, self.heartbeats, claims, self.results)
        self.logs = LogPump(self.agent, self.link, self.heartbeats)
        pauses = policy.PauseFile(machine.folder, machine.disk)
        self.owner = Owner(settings, self.agent, self.spool, self.contact, pauses, wall=world.clock.wall)
        self.claimer = Claimer(self.agent, self.spool, self.link, self.heartbeats, claims, idle_wait=0.0)
        self._woken = {"finish": self.results.woken, "uploads": self.results.uploads}
        self.registered = self._working = False
        self._recovered = recovery.Recovered()

    def _say(self, line: str) -> None:
        self.machine.world.tell(f"{self.machine.name}: {line}")

    def _runners(self, tell: Report) -> dict[str, Runner]:
        self.runner = SimulatedRunner(self.machine, tell)
        return {RunAs.PROCESS: self.runner}

    def _room(self) -> None:
        self.due_now("claim", "finish")

    def _wake_all(self) -> None:
        self.results.wake()
        self.due_now("claim", "heartbeat")

    @property
    def attempts(self) -> dict[str, LocalAttempt]:
        return self.agent.read_state(lambda machine, _: machine.attempts)

    @property
    def ledger(self) -> Ledger:
        return self.agent.read_state(lambda machine, _: machine.ledger)

    def begin(self) -> None:
        self.owner.apply()
        self._recovered = recovery.recover(self.agent, self.spool, str(self.machine.boot), self._say)
        self.due = {"heartbeat": self.machine.world.now, "tick": self.machine.world.now}

    def due_now(self, *tasks: str) -> None:
        for task in tasks:
            if task in self.due:
                self.due[task] = self.machine.world.now

    def next(self) -> tuple[float, str]:
        for task, woken in self._woken.items():
            if woken.is_set():
                self.due_now(task)
        now = self.machine.world.now
        ready = sorted(task for task, when in self.due.items() if when <= now)
        if ready:  # threads that could all continue now: any of them may be first
            return max(now, self.machine.asleep_until), self.machine.world.random.choice(ready)
        when, task = min((when, task) for task, when in self.due.items())
        return max(when, self.machine.asleep_until), task

    def step(self, task: str) -> None:
        steps: dict[str, Callable[[], float]] = {
            "heartbeat": self._beat, "tick": self._tick, "finish": self.outbox.step,
            "uploads": self.outbox.step_uploads, "claim": self.claimer.step,
        }  # fmt: skip

        def work(life: Life) -> None:
            # A wake-up while the task works is not lost: the earlier of the two times counts.
            self.due[task] = FOREVER
            if task in self._woken:
                self._woken[task].clear()
            delay = steps[task]()
            self.due[task] = min(self.due[task], self.machine.world.now + max(delay, 0.01))

        self.guard(work)

    def guard(self, work: Callable[[Life], None]) -> None:
        """Run a piece of the worker's work; a crash or a newer session ends this life."""
        machine = self.machine
        if self._working:  # the worker itself has just ended a program: the outer call handles a crash
            return work(self)
        machine.world.acting = machine
        self._working = True
        try:
            work(self)
        except Crash:
            away = machine.world.random.uniform(0.1, 30.0)
            if machine.world.chance(0.3):
                machine.world.tell(f"{machine.name}: the machine loses power")
                machine.lose_power(away)
            else:
                machine.world.tell(f"{machine.name}: the worker is killed")
                machine.kill(away)
        except Superseded as reason:
            machine.world.superseded(machine, str(reason))
            self.agent.discard_all()
            machine.kill(5.0)
        finally:
            self._working = False
        return None

    def _beat(self) -> float:
        if self.registered:
            return self.heartbeats.step()
        held = [name for name in self._recovered.held if name in self.spool.entries]
        body = Register(
            session=self.session, labels={"runner.process": True, "network": "none"},
            capacity=Amount(2.0, 16 * GIB, 0, 100 * GIB).message(), holding=held, gone=self._recovered.gone,
        )  # fmt: skip
        try:
            answer = self.coordinator.register(body)
        except NoAnswer as error:
            return self.contact.failed("register", error)
        except Refused as refused:
            raise Superseded(refused.message) from None
        self.heartbeats.registered(answer.heartbeat_seconds, answer.lease_seconds)
        self.contact.max_wait_seconds = min(60.0, max(2.0, answer.lease_seconds))
        self.contact.ok("register")
        self.registered = True
        now = self.machine.world.now
        self.due |= dict.fromkeys(("finish", "uploads", "claim"), now)
        return 0.0

    def _tick(self) -> float:
        self.owner.apply()
        self.agent.tick()
        if self.registered:
            self.logs.step()
        self.agent.set_gate("disk", "the disk is full" if self.machine.disk.full else "")
        if not self.runner.trouble:
            recovery.retry_adoptions(self.agent, self._say)
        self.agent.set_gate("runner", self.runner.trouble)
        if self.registered and self.agent.has_unreported_program(0.5):
            self.due_now("heartbeat")
        return 2.0 if self.agent.read_state(lambda machine, _: bool(machine.attempts)) else 5.0

    def stop(self) -> None:
        """SIGTERM: unfinished attempts are given back, results are sent if possible, and the process ends."""

        def work(life: Life) -> None:
            self.agent.set_gate("draining", "the worker is stopping")
            self.agent.stop_all(StopCause.RELEASE, "the worker is stopping")
            self.agent.tick()
            for _ in range(3):
                if self.registered and not self.outbox.empty:
                    self.outbox.step_uploads()
                    self.outbox.step()
            self.spool.commit()

        self.guard(work)
        if self.machine.life is self:
            self.machine.kill(self.machine.world.random.uniform(1.0, 60.0))
