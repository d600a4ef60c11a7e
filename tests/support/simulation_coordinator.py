"""A coordinator in this process, on a clock that the test moves, asked through its operations.

Commits are not flushed to the disk: the process does not die, and thousands of these are opened in a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deborgen_coordinator.app import open_context
from deborgen_coordinator.operations import logs, runs, workers
from deborgen_coordinator.operations.audit import Report, run_audit
from deborgen_coordinator.operations.context import Actor, Context
from deborgen_coordinator.operations.sweep import Sweeper
from deborgen_coordinator.settings import Settings
from deborgen_coordinator.storage import database
from deborgen_shared.messages import Assignment, Claim, Claimed, Finish, Heartbeat, Held, Register, Resources, Result
from deborgen_shared.states import Role

PERSON = Actor(Role.SUBMITTER, "ada", "")
ADMIN = Actor(Role.ADMIN, "root", "")
GIB = 2**30
ROOM = Resources(cpus=64, memory=256 * GIB, gpus=8, disk=1024 * GIB)


class ManualClock:
    """Two clocks that the test moves: `pass_` moves both, `step_wall` only the one that may jump."""

    def __init__(self) -> None:
        self._wall, self._steady = 1_800_000_000.0, 1000.0

    def wall(self) -> float:
        return self._wall

    def steady(self) -> float:
        return self._steady

    def pass_(self, seconds: float) -> None:
        self._wall += seconds
        self._steady += seconds

    def step_wall(self, seconds: float) -> None:
        self._wall += seconds


@contextmanager
def unsynced_sqlite() -> Iterator[None]:
    """SQLite without flushes: what the operating system has survives a process, and no power is lost here."""
    real = database.SqliteConnection.__init__

    def init(self: Any, path: Path, *, readonly: bool) -> None:
        real(self, path, readonly=readonly)
        self.run("PRAGMA synchronous = OFF")

    database.SqliteConnection.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        database.SqliteConnection.__init__ = real  # type: ignore[method-assign]


class InProcess:
    """The operations of one coordinator. `down` and `up` are a kill and a start; the clock is the test's."""

    def __init__(self, folder: Path, url: str = "", clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock()
        values = {"lease_seconds": 60.0, "heartbeat_seconds": 10.0, "log_level": "error", **settings}
        self.settings = Settings(data_dir=str(folder / "coordinator"), database=url, **values)
        self.ctx: Context
        self.sweeper: Sweeper
        self.up()

    def up(self) -> None:
        self.ctx = open_context(self.settings, self.clock)
        self.sweeper = Sweeper(self.ctx)

    def down(self) -> None:
        self.ctx.store.close()

    def submit(self, document: dict[str, Any], key: str | None = None) -> int:
        digest = hashlib.sha256(repr(document).encode()).hexdigest()
        return runs.submit(self.ctx, PERSON, document, key, digest)[0].id

    def audit(self) -> Report:
        return run_audit(self.ctx)

    def worker(self, name: str) -> HandWorker:
        return HandWorker(self, name)


class HandWorker:
    """A worker whose every call the test makes by hand."""

    def __init__(self, coordinator: InProcess, name: str) -> None:
        self._coordinator, self.name = coordinator, name
        self.actor = Actor(Role.WORKER, name, "")
        self._requests = self._sessions = 0
        self.session = ""
        self.register()

    @property
    def _ctx(self) -> Context:
        return self._coordinator.ctx

    def register(self, *holding: str) -> list[str]:
        """A new session."""
        self._sessions += 1
        self.session = f"{self.name}-{self._sessions}"
        labels: dict[str, Any] = {"runner.subprocess": True, "runner.podman": True, "network.internet": True}
        body = Register(session=self.session, labels=labels, capacity=ROOM, holding=list(holding))
        return workers.register(self._ctx, self.actor, self.name, body).lost

    def claim(self, most: int = 1, request: str = "") -> list[Assignment]:
        self._requests += 1
        body = Claim(session=self.session, request_id=request or f"{self.name}-{self._requests}", free=ROOM, max=most)
        answer = workers.claim(self._ctx, self.actor, self.name, body)
        return answer.assignments if isinstance(answer, Claimed) else []

    def beat(self, *attempts: str) -> dict[str, str]:
        body = Heartbeat(session=self.session, holding=[Held(attempt=attempt) for attempt in attempts])
        return dict(workers.heartbeat(self._ctx, self.actor, self.name, body).attempts)

    def take(self) -> str:
        """One attempt, claimed and confirmed."""
        attempt = self.claim()[0].attempt
        assert self.beat(attempt) == {attempt: "continue"}
        return attempt

    def log(self, attempt: str, offset: int, data: bytes) -> int:
        job, _, number = attempt.partition("/")
        run, _, index = job.partition(".")
        where = (int(run), int(index), int(number))
        return logs.append(self._ctx, self.actor, *where, offset, data, self.session).size

    def finish(self, attempt: str, outcome: str = "succeeded", **more: Any) -> str:
        if outcome == "succeeded":
            more.setdefault("exit_code", 0)
        result = Result(attempt=attempt, outcome=outcome, seconds=1.0, **more)  # type: ignore[arg-type]
        answer = workers.finish(self._ctx, self.actor, self.name, Finish(session=self.session, results=[result]))
        return answer.results[attempt]
