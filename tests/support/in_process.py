"""A coordinator in the process of the test, on a clock that the test moves, and workers that do what the test says.

The test calls the operations of the coordinator directly: there is no HTTP and no other process.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deborgen_coordinator.app import open_context
from deborgen_coordinator.leases import longest_lag
from deborgen_coordinator.operations import history
from deborgen_coordinator.operations.attempts import checkpoints, logs, program_events
from deborgen_coordinator.operations.context import Actor, Context
from deborgen_coordinator.operations.jobs.look import get_job
from deborgen_coordinator.operations.maintenance.audit import AuditReport, run_audit
from deborgen_coordinator.operations.maintenance.lease_check import LeaseChecker
from deborgen_coordinator.operations.runs import submit as submitting
from deborgen_coordinator.operations.runs.cancel import cancel_job, cancel_run
from deborgen_coordinator.operations.runs.look import get_run
from deborgen_coordinator.operations.workers import claim as claims
from deborgen_coordinator.operations.workers.finish import finish
from deborgen_coordinator.operations.workers.heartbeat import heartbeat
from deborgen_coordinator.operations.workers.leave import leave
from deborgen_coordinator.operations.workers.register import register
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_coordinator.settings import CoordinatorSettings
from deborgen_coordinator.storage.sqlite import SqliteConnection
from deborgen_shared import messages as m
from deborgen_shared.queries import EventsQuery
from deborgen_shared.states import Role
from support.clock import FakeClock

GIB = 2**30
LEASE = 60.0
HEARTBEAT = 10.0
LEASE_CHECK_SECONDS = 3.0
#: After this many seconds a lease that nobody renews has certainly ended.
PAST_LEASE = LEASE + longest_lag(LEASE) + 2 * LEASE_CHECK_SECONDS


def person(name: str, role: Role = Role.SUBMITTER) -> Actor:
    return Actor(role, name, "token")


@contextmanager
def unsynced_sqlite() -> Iterator[None]:
    """Within the block, SQLite does not flush its commits to the disk.

    Thousands of coordinators can then be opened quickly. A commit would be lost only if the machine itself failed.
    """
    real = SqliteConnection.__init__

    def init(self: Any, path: Path, *, readonly: bool) -> None:
        real(self, path, readonly=readonly)
        self.run("PRAGMA synchronous = OFF")

    SqliteConnection.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        SqliteConnection.__init__ = real  # type: ignore[method-assign]


class InProcessCoordinator:
    """One coordinator. `stop` and `start` do what the end of a process and a new process would do."""

    def __init__(self, folder: Path, database: str = "", clock: FakeClock | None = None, **settings: Any) -> None:
        self.clock = clock or FakeClock()
        values = {"lease_seconds": LEASE, "heartbeat_seconds": HEARTBEAT, **settings}
        self.settings = CoordinatorSettings(data_dir=str(folder), database=database, **values)
        self.ctx: Context
        self.lease_checker: LeaseChecker
        self.start()

    def start(self) -> None:
        self.ctx = open_context(self.settings, self.clock)
        self.lease_checker = LeaseChecker(self.ctx)
        self.lease_checker.run_once()

    def stop(self) -> None:
        self.ctx.wakeups.close()
        self.ctx.store.close()

    def restart(self, down_for: float = 0.0) -> None:
        self.stop()
        self.clock.pass_by(down_for)
        self.start()

    def sleep(self, seconds: float) -> None:
        """Let this many seconds pass, with a lease check every three seconds, as in a running coordinator."""
        while seconds > 0:
            step = min(LEASE_CHECK_SECONDS, seconds)
            self.clock.pass_by(step)
            self.lease_checker.run_once()
            seconds -= step

    def submit(
        self, document: dict[str, Any] | None = None, by: str = "alice", key: str | None = None, **keys: Any
    ) -> m.Run:
        """Submit a job file. If it does not say what to run, it runs `true`.

        Its jobs have one attempt unless it sets more: a second one would hide what went wrong.
        """
        body = {"max_attempts": 1, **(document or {}), **keys}
        if "steps" not in body and "build" not in body:
            body = {"run": "true", **body}
        return submitting.submit(self.ctx, person(by), body, key, repr(sorted(body.items(), key=str)))[0]

    def run(self, run: int) -> m.Run:
        return get_run(self.ctx, run)

    def job(self, name: str) -> m.JobDetail:
        return get_job(self.ctx, *_job(name))

    def cancel(self, name: str, by: str = "alice") -> dict[str, str]:
        run, _, index = name.partition(".")
        if index:
            return dict(cancel_job(self.ctx, person(by), int(run), int(index), "").jobs)
        return dict(cancel_run(self.ctx, person(by), int(run), "").jobs)

    def events(self, **where: Any) -> list[m.Event]:
        filters = {"after": 0, "run": None, "job": None, "worker": None, "limit": 1000, **where}
        return history.list_events(self.ctx, EventsQuery(**filters)).items

    def types(self, **where: Any) -> list[str]:
        return [event.type for event in self.events(**where)]

    def log(self, name: str, number: int = 1) -> bytes:
        return logs.read(self.ctx, *_job(name), number, 0, 1 << 30)

    def audit(self) -> AuditReport:
        return run_audit(self.ctx)

    def worker(self, name: str = "pc1", **capacity: Any) -> InProcessWorker:
        """A worker that has registered."""
        worker = InProcessWorker(self, name, **capacity)
        worker.register()
        return worker


class InProcessWorker:
    """A worker that makes only the calls that the test asks for.

    Every call may be repeated with the same arguments, as after a lost answer.
    """

    _sessions = itertools.count(1)

    def __init__(
        self, coordinator: InProcessCoordinator, name: str, labels: dict[str, Any] | None = None, **capacity: Any
    ) -> None:
        self.coordinator = coordinator
        self.name = name
        self.actor = Actor(Role.WORKER, name, "token")
        self.labels = {"runner.process": True, "os": "linux", **(labels or {})}
        self.capacity = m.Resources(**{"cpus": 64, "memory": 256 * GIB, "gpus": 0, **capacity})
        self.session = f"s{next(self._sessions)}"
        self._requests = itertools.count(1)
        self.holding: list[str] = []

    def register(self, holding: list[str] | None = None, **more: Any) -> list[str]:
        """Register this session; returns the attempts that the coordinator considers lost."""
        body = m.Register(
            session=self.session, labels=self.labels, capacity=self.capacity, holding=holding or [], **more
        )
        self.holding = list(holding or [])
        return register(self.coordinator.ctx, self.actor, self.name, body).lost

    def restart(self, holding: list[str] | None = None, **more: Any) -> list[str]:
        """Register a new session, as a new process of the worker does."""
        self.session = f"s{next(self._sessions)}"
        return self.register(holding, **more)

    def claim(self, most: int = 1, request: str | None = None, **how: Any) -> list[str]:
        """Claim up to `most` jobs; returns the attempts that were granted."""
        return [assignment.attempt for assignment in self.assignments(most, request, **how)]

    def assignments(
        self,
        most: int = 1,
        request: str | None = None,
        free: m.Resources | None = None,
        wait: float = 0,
        ahead: bool = False,
    ) -> list[m.Assignment]:
        body = m.Claim(
            session=self.session,
            request_id=request or self._new_request(),
            free=free or self.capacity,
            max=most,
            wait_seconds=wait,
            ahead=ahead,
        )
        answer = claims.claim(self.coordinator.ctx, self.actor, self.name, body)
        given = answer.assignments if isinstance(answer, m.Claimed) else []
        self.holding += [assignment.attempt for assignment in given if assignment.attempt not in self.holding]
        return given

    def beat(self, *attempts: str, **more: Any) -> dict[str, str]:
        """Send a heartbeat for these attempts, or for all that the worker holds; returns the answer for each."""
        return dict(self.heartbeat(*attempts, **more).attempts)

    def heartbeat(self, *attempts: str, **more: Any) -> m.HeartbeatAnswer:
        """Send a heartbeat for these attempts, or for all that the worker holds.

        Fields that describe an attempt are sent with each attempt. All others describe the worker.
        """
        progress = {
            key: more.pop(key)
            for key in ("progress", "message", "began_seconds_ago", "stopped_seconds", "standing")
            if key in more
        }
        holding = [m.Held(attempt=attempt, **progress) for attempt in attempts or self.holding]
        body = m.Heartbeat(session=self.session, holding=holding, **more)
        return heartbeat(self.coordinator.ctx, self.actor, self.name, body)

    def start(self, most: int = 1) -> list[str]:
        """Claim, and name the granted attempts in a heartbeat."""
        given = self.claim(most)
        if given:
            self.beat(*given)
        return given

    def take(self) -> str:
        """Claim one attempt, which must be available, and name it in a heartbeat."""
        [attempt] = self.claim()
        assert self.beat(attempt) == {attempt: "continue"}
        return attempt

    def finish(self, attempt: str, outcome: str = "succeeded", **fields: Any) -> str:
        return self.finish_and_claim(attempt, outcome, None, **fields).results[attempt]

    def finish_and_claim(
        self, attempt: str, outcome: str = "succeeded", request: str | None = "", most: int = 1, **fields: Any
    ) -> m.Finished:
        """Send a result with a claim under this request id: a new id if it is empty, no claim if it is None."""
        default = {"exit_code": 0} if outcome == "succeeded" else {"exit_code": 1} if outcome == "failed" else {}
        result = m.Result(attempt=attempt, outcome=outcome, **{**default, **fields})  # type: ignore[arg-type]
        claim = None
        if request is not None:
            claim = m.NextClaim(request_id=request or self._new_request(), free=self.capacity, max=most)
        body = m.Finish(session=self.session, results=[result], claim=claim)
        answer = finish(self.coordinator.ctx, self.actor, self.name, body)
        if answer.results[attempt] != "missing_blobs" and attempt in self.holding:
            self.holding.remove(attempt)
        given = [each.attempt for each in answer.assignments or []]
        self.holding += [each for each in given if each not in self.holding]
        return answer

    def _new_request(self) -> str:
        return f"{self.session}-{next(self._requests)}"

    def write_log(self, attempt: str, data: bytes, offset: int = 0) -> int:
        """Append to the log of an attempt; returns the size of the log afterwards."""
        job, _, number = attempt.partition("/")
        ctx = self.coordinator.ctx
        return logs.append(ctx, self.actor, AttemptId(*_job(job), int(number)), offset, data, self.session).size

    def send_events(self, attempt: str, *events: m.ProgramEvent | None, first: int | None = None) -> m.EventCount:
        """Send events of the attempt's program; returns how many the attempt has afterwards."""
        job, _, number = attempt.partition("/")
        body = m.ProgramEvents(session=self.session, events=list(events), first=first)
        return program_events.append(self.coordinator.ctx, self.actor, AttemptId(*_job(job), int(number)), body)

    def save_checkpoint(self, attempt: str, number: int, **files: bytes) -> m.CheckpointSaved:
        """Save these files, in the folder `state`, as a checkpoint. Only blobs that exist already can be in it."""
        job, _, attempt_number = attempt.partition("/")
        listed = [
            m.SavedFile(path=f"state/{name}", sha256=hashlib.sha256(data).hexdigest(), size=len(data))
            for name, data in files.items()
        ]
        body = m.SaveCheckpoint(session=self.session, number=number, files=listed)
        which = AttemptId(*_job(job), int(attempt_number))
        return checkpoints.save(self.coordinator.ctx, self.actor, which, body)

    def leave(self) -> None:
        leave(self.coordinator.ctx, self.actor, self.name)


def _job(name: str) -> tuple[int, int]:
    """The numbers of the run and of the job in a name such as 3.1."""
    run, _, index = name.partition(".")
    return int(run), int(index)
