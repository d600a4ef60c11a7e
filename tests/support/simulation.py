"""A deterministic simulation: the real coordinator and real workers in one process, on one clock, driven by a seed.

`simulate(seed)` lives through a bad quarter of an hour, and then lets everything come to rest. The rules are checked
after every step, and the audit runs at the end. A broken rule raises, with the story of the seed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from deborgen_coordinator.leases import too_late_after
from deborgen_coordinator.lifecycle import TRANSITIONS
from deborgen_coordinator.operations.attempts import artifacts, logs
from deborgen_coordinator.operations.maintenance.audit import examine
from deborgen_coordinator.storage import audit
from deborgen_coordinator.storage.database import DatabaseConnection
from deborgen_coordinator.storage.sqlite import SqliteDatabase
from deborgen_shared.program_events import JOB_EVENT
from deborgen_worker import agent, journal, outbox, performer, results, spool
from support.clock import FakeClock
from support.in_process import InProcessCoordinator, unsynced_sqlite
from support.simulation_faults import Faults, key_of, resume, steer, strike, submit
from support.simulation_life import FOREVER, Crash
from support.simulation_machine import Machine
from support.simulation_network import IMPOSSIBLE, Network
from support.simulation_truth import Plan, Truth, Violation

LEASE, HEARTBEAT, LEASE_CHECK = 60.0, 10.0, 3.0
LEGAL = {(old.value, new.value) for (old, _), new in TRANSITIONS.items()} | {(None, "queued")}
TERMINAL = {"succeeded", "failed", "canceled"}
#: These run after every step.
QUICK = [check for check in audit.CHECKS if check.name in {
    "run_counts", "live_twice", "running_without_attempt", "held_without_running", "attempts_charged",
    "state_and_outcome", "artifact_blob", "log_size", "program_events", "loop_stopped", "loop_continued", "answer",
}]  # fmt: skip
#: When several steps are due at the same moment, the one with the lowest number is first. The machines' steps have
#: numbers from 10 on.
END_ORDER, LEASE_CHECK_ORDER, TIMED_ORDER, FAULT_ORDER = 0, 1, 5000, 9999
#: How many seconds the faults last, and how many everything may then take to come to rest.
BAD_SECONDS, REST_SECONDS = 900.0, 40 * 3600.0


class SimulationFailed(AssertionError):
    """A seed that broke a rule, with its story."""

    def __init__(self, seed: int, reason: str, story: list[str]) -> None:
        super().__init__(f"seed {seed}: {reason}\n" + "\n".join(story[-120:]))
        self.seed, self.reason = seed, reason


class World:
    """Everything that a seed decides: the clock, the coordinator, the machines, the network and the faults."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        #: With every third seed, jobs also wait in chains behind each other, as very short ones do.
        self.uses_chains = seed % 3 == 1
        #: With every seventh seed, jobs are loops.
        self.uses_loops = seed % 7 == 1
        self.clock = FakeClock()
        self.coordinator = InProcessCoordinator(
            folder / "coordinator", clock=self.clock, lease_seconds=LEASE, heartbeat_seconds=HEARTBEAT
        )
        self.up, self.stopped_since, self.stopped_until = True, 0.0, 0.0
        self.up_since = self.now
        self.uptime = 0.0
        self.faults = Faults.draw(self.random)
        self.network = Network(self)
        self.truth = Truth(self)
        self.story: list[str] = []
        #: The machine whose worker runs at this moment.
        self.acting: Machine | None = None
        #: Jobs that were canceled before they started: they must never start.
        self.promised: set[str] = set()
        self._ids = 0
        self.plans: dict[int, Plan] = {}
        self.states: dict[int, str] = {}
        #: The attempts that each request of each worker was granted.
        self._granted: dict[tuple[str, str], set[str]] = {}
        #: How often the worker's machine had gone down when an attempt was granted.
        self._grant_boots: dict[str, int] = {}
        #: The coordinator's uptime when the lease of an attempt was last renewed.
        self._renewed: dict[str, float] = {}
        self.canceled: set[int] = set()
        #: The last job of each loop that may start, because its cancel was requested; by the loop's first job.
        self.last_of_loop: dict[int, int] = {}
        self._sessions: set[str] = set()
        self._own_events: dict[str, int] = {}
        self._seq = self._batches = 0
        self._lease_check_at = self.now
        self._timed: list[tuple[float, int, Callable[[], None]]] = []
        count = self.random.choice([1, 2, 3, 4])
        self.machines = [Machine(self, f"pc{n}", folder / f"pc{n}") for n in range(1, count + 1)]
        for machine in self.machines:
            machine.booted_at = self.now - 100.0
        #: With every fifth seed, nothing can be started on the first machine until all is well again.
        self.machines[0].ill = seed % 5 == 4

    # Called by the parts

    @property
    def now(self) -> float:
        return self.clock.steady()

    def tell(self, line: str) -> None:
        self.story.append(f"{self.now - 1000:9.2f} {line}")

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def dies(self, place: str, machine: Machine) -> bool:
        if not self.chance(self.faults.crash):
            return False
        self.tell(f"{machine.name}: dies at {place}")
        return True

    def die_at(self, place: str, machine: Machine) -> None:
        if self.dies(place, machine):
            raise Crash

    def point(self, name: str) -> None:
        """A crash point of the product: the worker that runs now may die here."""
        assert self.acting is not None
        self.die_at(name, self.acting)

    def plan(self, attempt: str) -> Plan:
        return self.plans[int(attempt.partition(".")[0])]

    # Checks

    def check_refusal(self, what: str, code: str) -> None:
        if code in IMPOSSIBLE:
            raise Violation(f"a {what} of a worker was refused as {code}")

    def superseded(self, machine: Machine, reason: str) -> None:
        raise Violation(f"{machine.name} was told that it is superseded, but no other session speaks for it: {reason}")

    def granted(self, worker: str, request: str, attempts: list[str]) -> None:
        """The same request gets the same attempts, never more. A machine that keeps failing gets one at a time."""
        if (worker, request) not in self._granted:
            self.coordinator.ctx.store.read(lambda reader: self._check_probation(reader, worker))
        first = self._granted.setdefault((worker, request), set(attempts))
        if not set(attempts) <= first:
            raise Violation(f"request {request} of {worker} was given {sorted(first)}, and then {attempts}")
        for attempt in attempts:
            self._grant_boots.setdefault(attempt, self.truth.boots.get(worker, 0))
            self._renewed[attempt] = self.uptime

    def _check_probation(self, reader: DatabaseConnection, worker: str) -> None:
        sql = "SELECT id, failures, rest_clock FROM worker WHERE name = ?"
        id_, failures, rest_clock = reader.rows(sql, (worker,))[0]
        if rest_clock > reader.value("SELECT value FROM lease_clock"):
            raise Violation(f"{worker} was given a job while it had to pause")
        live = reader.value("SELECT count(*) FROM attempt WHERE worker_id = ? AND outcome IS NULL", (id_,))
        if failures >= 5 and live > 1:
            raise Violation(f"{worker} has {live} jobs after {failures} failures in a row")

    def renewed(self, attempts: list[str]) -> None:
        for attempt in attempts:
            self._renewed[attempt] = self.uptime

    def is_first(self, session: str) -> bool:
        """Whether this is a session's first registration: a repeat renews nothing."""
        first = session not in self._sessions
        self._sessions.add(session)
        return first

    def lease_is_over(self, attempt: str) -> bool:
        """Whether the coordinator has ended the attempt because nobody renewed its lease in time."""
        job, _, number = attempt.partition("/")
        sql = "SELECT outcome, reason FROM attempt WHERE job_id = ? AND number = ?"
        [(outcome, reason)] = self._stored(sql, key_of(job), int(number))
        return outcome is not None and reason == "the lease expired"

    def _stored(self, sql: str, *values: Any) -> list[Any]:
        """Rows of the database, read on a separate connection: a program that waited in a chain may begin while the
        coordinator is down."""
        database = self.coordinator.ctx.store.database
        assert isinstance(database, SqliteDatabase)
        with contextlib.closing(sqlite3.connect(database.path)) as reader:
            return reader.execute(sql, values).fetchall()

    def note_cancel(self, job: int) -> None:
        """The cancel of an unfinished job was requested. If it is in a loop, no further job of the loop may start."""
        [(point,)] = self._stored("SELECT point FROM job WHERE id = ?", job)
        if point is not None:
            self.last_of_loop.setdefault(point, job)

    def check_loop(self, attempt: str) -> None:
        job = key_of(attempt.partition("/")[0])
        [(point,)] = self._stored("SELECT point FROM job WHERE id = ?", job)
        if job > self.last_of_loop.get(point, job):
            raise Violation(f"{attempt} was started after the cancel of an earlier job of its loop")

    def work_before(self, attempt: str) -> str:
        """The attempt whose artifacts this one gets from its loop; empty if there is none."""
        rows = self._stored(
            "SELECT work.id, work.last_attempt FROM job AS own JOIN job AS work ON work.point = own.point"
            " AND work.phase = 'work' AND work.round = own.round - (own.phase = 'work') WHERE own.id = ?",
            key_of(attempt.partition("/")[0]),
        )
        return f"{_name(rows[0][0])}/{rows[0][1]}" if rows else ""

    def check(self) -> None:
        """Check the rules, after a step."""
        self.coordinator.ctx.store.read(self._check)

    def _check(self, reader: DatabaseConnection) -> None:
        fresh = reader.rows(
            "SELECT seq, type, job_id, attempt, worker, old_state, new_state, data FROM event WHERE seq > ?"
            " ORDER BY seq",
            (self._seq,),
        )
        if not fresh:
            return
        expired = {(row[2], row[3]) for row in fresh if row[1] == "lease.expired"}
        for seq, type_, job, number, worker, old, new, data in fresh:
            self._seq = seq
            self.tell(f"      event {type_} {_name(job)}{f'/{number}' if number else ''} {worker or ''} {data or ''}")
            if new is not None and job & 0xFFFFF:
                self._move(job, old, new)
            if type_ == JOB_EVENT:
                self._check_own_event(f"{_name(job)}/{number}", json.loads(data))
            if type_ == "lease.expired":
                self._check_expiry(f"{_name(job)}/{number}")
            if type_ == "job.canceled" and not self._is_canceled(reader, job) and '"step ' not in (data or ""):
                raise Violation(f"{_name(job)} was canceled, but nobody asked for it")
            if '"outcome":"lost"' in (data or "") and (job, number) not in expired:
                self._check_loss(f"{_name(job)}/{number}", worker)
        for check in QUICK:
            found = check.rows(reader)
            if found:
                raise Violation(f"{_name(found[0][0])}: {check.sentence}")
        if reader.one("SELECT 1 FROM job WHERE state = 'queued' AND cancel_requested = 1"):
            raise Violation("a job whose cancel was requested is queued again")
        self._batches += 1
        if self._batches % 40 == 0:
            self._examine(reader)

    def _is_canceled(self, reader: DatabaseConnection, job: int) -> bool:
        """Whether somebody has asked for the cancel of this job, or of an earlier one of its loop."""
        [(point,)] = reader.rows("SELECT point FROM job WHERE id = ?", (job,))
        return job in self.canceled or job > self.last_of_loop.get(point, job)

    def _examine(self, reader: DatabaseConnection) -> None:
        report = examine(reader)
        if not report.clean:
            raise Violation("; ".join(report.lines()))

    def _move(self, job: int, old: str | None, new: str) -> None:
        if self.states.get(job) != old or (old, new) not in LEGAL:
            raise Violation(f"{_name(job)} was {self.states.get(job)}, and went from {old} to {new}")
        self.states[job] = new

    def _check_own_event(self, attempt: str, data: dict[str, Any]) -> None:
        """Each event of a program is recorded once, in order, as it was written."""
        known = self._own_events.get(attempt, 0)
        self.truth.check_event(attempt, data["number"], data["type"], known)
        self._own_events[attempt] = known + 1

    def _check_expiry(self, attempt: str) -> None:
        """A lease runs only while it could have been renewed."""
        held = self.uptime - self._renewed.get(attempt, 0.0)
        since_start = self.now - self.up_since
        if min(held, since_start) < LEASE:
            raise Violation(
                f"the lease of {attempt} expired, {held:.0f} s of uptime after it was renewed and {since_start:.0f} s "
                "after the coordinator was back"
            )

    def _check_loss(self, attempt: str, worker: str) -> None:
        """A restart of the worker costs no attempt, and a result that was sent is not lost."""
        if self.truth.boots.get(worker, 0) == self._grant_boots.get(attempt, 0):
            raise Violation(f"{attempt} was lost at a registration of {worker}, although its machine had not gone down")
        if attempt in self.truth.sent and not self.wiped:
            raise Violation(f"{attempt} was lost, although {worker} had already sent its result")

    #: Whether any spool was wiped. Then a result that was sent may be lost.
    wiped = False

    # Time

    def run(self) -> None:
        submit(self)
        end, fault_at = self.now + BAD_SECONDS, self.now + 5.0
        while self.now < end:
            fault_at = self._turn(fault_at, end)
        self._heal()
        end = self.now + REST_SECONDS
        while not self._at_rest():
            if self.now > end:
                raise Violation(f"these jobs never end: {self._unfinished()}")
            self._turn(FOREVER, FOREVER)
        self._check_the_end()

    def _turn(self, fault_at: float, end: float) -> float:
        """Run whatever is due next: one step of one part. Returns when the next large fault is due."""
        next_: list[tuple[float, int, Callable[[], None]]] = [(end, END_ORDER, lambda: None)]
        serving = self.up and self.now >= self.stopped_until
        lease_check_at = max(self._lease_check_at, self.stopped_until) if self.up else FOREVER
        next_.append((lease_check_at, LEASE_CHECK_ORDER, self._check_leases))
        for number, machine in enumerate(self.machines):
            next_.extend((when, 10 * (number + 1) + order, do) for order, (when, do) in enumerate(self._steps(machine)))
        if self._timed:
            next_.append(min(self._timed, key=lambda each: each[:2]))
        next_.append((fault_at, FAULT_ORDER, lambda: strike(self)))
        when, order, do = min(next_, key=lambda each: each[:2])
        delta = max(0.0, when - self.now)
        self.clock.pass_by(delta)
        if serving:
            self.uptime += delta
        if self._timed and (when, order, do) in self._timed:
            self._timed.remove((when, order, do))
        do()
        self.truth.check_stops()
        return self.now + self.random.expovariate(1 / self.faults.pause_between) if order == FAULT_ORDER else fault_at

    def _steps(self, machine: Machine) -> Iterator[tuple[float, Callable[[], None]]]:
        when, attempt = machine.next_exit()
        yield when, lambda: machine.end_program(attempt)
        if machine.life is None:
            yield max(machine.starts_at, machine.asleep_until), machine.start
        else:
            life = machine.life
            when, task = life.next()
            yield when, lambda: life.step(task)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        self._timed.append((self.now + seconds, TIMED_ORDER + self.next_id(), do))

    def _check_leases(self) -> None:
        self._lease_check_at = self.now + LEASE_CHECK
        if not self.up:
            return
        self.coordinator.lease_checker.run_once()
        if self.chance(0.1):
            self.coordinator.lease_checker._cleaner.seal_logs()
        self.check()

    # Faults of the coordinator

    def stop_coordinator(self, away: float | None = None) -> None:
        if not self.up:
            return
        self.tell("the coordinator is killed")
        self.up = False
        self.coordinator.stop()
        self.later(away if away is not None else self.random.uniform(0.5, 200.0), self.start_coordinator)

    def start_coordinator(self) -> None:
        if self.up:
            return
        self.tell("the coordinator starts")
        self.coordinator.start()
        self.up, self.up_since, self._lease_check_at = True, self.now, self.now

    def freeze_coordinator(self, seconds: float) -> None:
        """SIGSTOP: no request is answered, no lease check runs, and the process does not notice."""
        if not self.up or self.now < self.stopped_until:
            return
        self.tell(f"the coordinator is stopped for {seconds:.0f} s")
        self.stopped_since, self.stopped_until = self.now, self.now + seconds
        self.up = False
        self.later(seconds, self.resume_coordinator)

    def resume_coordinator(self) -> None:
        """SIGCONT, at the planned time or earlier."""
        self.up, self.stopped_until = True, 0.0
        # So late that the lease check notices:
        if self.now - (self._lease_check_at - LEASE_CHECK) > too_late_after(LEASE):
            self.up_since = self.now
        # A short stop counts as uptime; a long one gives every lease a full period.
        self.uptime += self.now - self.stopped_since
        self.tell("the coordinator continues")

    # The end

    def _heal(self) -> None:
        self.tell("== all is well again")
        self.faults = dataclasses.replace(Faults())
        self._timed.clear()
        if self.stopped_until > self.now:
            self.resume_coordinator()
        self.start_coordinator()
        for machine in self.machines:
            machine.partition, machine.disk.full, machine.ill = "", False, False
            if not machine.awake:
                machine.booted_at -= machine.asleep_until - self.now
                machine.asleep_until = 0.0
            if machine.life is not None:
                machine.life.runner.trouble = ""
            resume(self, machine)
            steer(self, machine.name, False)

    def _unfinished(self) -> list[str]:
        return [_name(job) for job, state in self.states.items() if state not in TERMINAL]

    def _at_rest(self) -> bool:
        return not self._unfinished() and all(
            machine.life is not None and not machine.life.spool.entries and not machine.life.attempts
            for machine in self.machines
        )

    def _check_the_end(self) -> None:
        ctx = self.coordinator.ctx
        report = self.coordinator.audit()
        if not report.clean:
            raise Violation("; ".join(report.lines()))
        for machine in self.machines:
            if machine.programs:
                raise Violation(f"{machine.name} still has {sorted(machine.programs)}")
            if machine.life is not None and machine.life.ledger.free() != machine.life.ledger.offered:
                raise Violation(f"{machine.name} does not offer all its room: {machine.life.ledger}")
        ended = ctx.store.read(lambda reader: reader.rows("SELECT job_id, number, outcome, log_told FROM attempt"))
        checks = {job for (job,) in self._stored("SELECT id FROM job WHERE phase = 'verify'")}  # they keep no artifacts
        for job, number, outcome, told in ended:
            attempt = f"{_name(job)}/{number}"
            if outcome == "succeeded" and self.truth.facts[attempt].code != 0:
                raise Violation(f"{attempt} succeeded, but its program did not")
            stored = logs.read(ctx, job >> 20, job & 0xFFFFF, number, 0, 1 << 30)
            whole = told is not None and outcome not in {"released", "error"}
            self.truth.check_log(attempt, stored, whole)
            if whole:
                self.truth.check_events(attempt, self._own_events.get(attempt, 0))
            if outcome == "succeeded" and self.plan(attempt).artifact and job not in checks:
                listed = artifacts.of_job(ctx, job >> 20, job & 0xFFFFF).items
                if [item.path for item in listed] != ["out.txt"]:
                    raise Violation(f"{attempt} succeeded without its artifact")
                self.truth.check_artifact(attempt, self.plan(attempt), listed[0].sha256)


def _name(job: int | None) -> str:
    """The name of a job, such as 3.1. Its key in the database is the number of its run times 2²⁰ plus its index."""
    return "" if job is None else f"{job >> 20}.{job & 0xFFFFF}"


@contextlib.contextmanager
def _crash_points(world: World) -> Iterator[None]:
    """Let the worker's crash points call the world. Its reserve is small, and it never waits in real time for files."""
    with contextlib.ExitStack() as patches:
        for module in (agent, performer, results, spool, outbox):
            patches.enter_context(mock.patch.object(module, "crash_point", world.point))
        patches.enter_context(mock.patch.object(journal, "RESERVE", 4096))
        patches.enter_context(mock.patch.object(performer, "FETCH_SECONDS", -1.0))
        yield


def simulate(seed: int) -> list[str]:
    """Simulate this seed; returns its story. Raises `SimulationFailed` if a rule was broken."""
    base = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="deborgen-simulation-", dir=base if base.is_dir() else None))
    world: World | None = None
    try:
        with unsynced_sqlite():
            world = World(seed, folder)
            with _crash_points(world):
                world.run()
        return world.story
    except (Exception, Violation) as error:
        if world is None:
            raise
        raise SimulationFailed(seed, f"{type(error).__name__}: {error}", world.story) from error
    finally:
        if world is not None:
            for machine in world.machines:
                machine.kill(0.0)
            if world.up:
                world.coordinator.stop()
        shutil.rmtree(folder, ignore_errors=True)
