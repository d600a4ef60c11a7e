"""A coordinator's operations in this process, on a clock that the test moves, and workers that do as they are told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deborgen_coordinator.app import open_context
from deborgen_coordinator.operations import events, jobs, logs, runs, workers
from deborgen_coordinator.operations.context import Actor, Context
from deborgen_coordinator.operations.sweep import Sweeper
from deborgen_coordinator.settings import Settings
from deborgen_shared import messages as m
from deborgen_shared.states import Role

GIB = 2**30
LEASE = 60.0
HEARTBEAT = 10.0


class FakeClock:
    """Wall and steady time that move only when they are told to."""

    def __init__(self) -> None:
        self._wall = 1_800_000_000.0
        self._steady = 1_000.0

    def wall(self) -> float:
        return self._wall

    def steady(self) -> float:
        return self._steady

    def pass_by(self, seconds: float) -> None:
        self._wall += seconds
        self._steady += seconds

    def step_wall(self, seconds: float) -> None:
        self._wall += seconds


class Pool:
    """One coordinator. `restart` is what a new process would do; `sleep` lets time pass with the sweep at work."""

    def __init__(self, folder: Path, database: str = "", **settings: Any) -> None:
        self.clock = FakeClock()
        self.settings = Settings(
            **{
                "data_dir": str(folder),
                "database": database,
                "lease_seconds": LEASE,
                "heartbeat_seconds": HEARTBEAT,
                **settings,
            }
        )
        self.ctx: Context = open_context(self.settings, self.clock)
        self.sweeper = Sweeper(self.ctx)
        self.sweeper.turn()

    def close(self) -> None:
        self.ctx.wakeups.close()
        self.ctx.store.close()

    def restart(self, down_for: float = 0.0) -> None:
        self.close()
        self.clock.pass_by(down_for)
        self.ctx = open_context(self.settings, self.clock)
        self.sweeper = Sweeper(self.ctx)
        self.sweeper.turn()

    def sleep(self, seconds: float) -> None:
        """Let so much time pass, with a turn of the sweep every three seconds, as in a running coordinator."""
        while seconds > 0:
            step = min(3.0, seconds)
            self.clock.pass_by(step)
            self.sweeper.turn()
            seconds -= step

    def submit(
        self, document: dict[str, Any] | None = None, by: str = "alice", key: str | None = None, **keys: Any
    ) -> m.Run:
        body = {"run": "true", **(document or {}), **keys}
        return runs.submit(self.ctx, person(by), body, key, repr(sorted(body.items(), key=str)))[0]

    def run(self, run: int) -> m.Run:
        return runs.get_run(self.ctx, run)

    def job(self, name: str) -> m.JobDetail:
        return jobs.get_job(self.ctx, *map(int, name.split(".")))

    def cancel(self, name: str, by: str = "alice") -> dict[str, str]:
        run, _, index = name.partition(".")
        if index:
            return jobs.cancel_job(self.ctx, person(by), int(run), int(index), "").jobs  # type: ignore[return-value]
        return runs.cancel_run(self.ctx, person(by), int(run), "").jobs  # type: ignore[return-value]

    def events(self, **where: Any) -> list[m.Event]:
        filters = {"after": 0, "run": None, "job": None, "worker": None, "limit": 1000, **where}
        return events.list_events(self.ctx, **filters).items

    def types(self, **where: Any) -> list[str]:
        return [event.type for event in self.events(**where)]

    def log(self, name: str, number: int = 1) -> bytes:
        return logs.read(self.ctx, *map(int, name.split(".")), number, 0, 1 << 30)  # type: ignore[arg-type,misc]

    def worker(self, name: str = "pc1", **capacity: Any) -> PoolWorker:
        worker = PoolWorker(self, name, **capacity)
        worker.register()
        return worker


def person(name: str, role: Role = Role.SUBMITTER) -> Actor:
    return Actor(role, name, "token")


class PoolWorker:
    """A worker in its own words. Every verb may be called again with the same arguments, as after a lost answer."""

    _sessions = itertools.count(1)

    def __init__(self, pool: Pool, name: str, labels: dict[str, Any] | None = None, **capacity: Any) -> None:
        self.pool = pool
        self.name = name
        self.actor = Actor(Role.WORKER, name, "token")
        self.labels = {"runner.subprocess": True, "os": "linux", **(labels or {})}
        self.capacity = m.Resources(**{"cpus": 64, "memory": 256 * GIB, "gpus": 0, **capacity})
        self.session = f"s{next(self._sessions)}"
        self._requests = itertools.count(1)
        self.holding: list[str] = []

    def register(self, holding: list[str] | None = None) -> list[str]:
        body = m.Register(session=self.session, labels=self.labels, capacity=self.capacity, holding=holding or [])
        self.holding = list(holding or [])
        return workers.register(self.pool.ctx, self.actor, self.name, body).lost

    def restart(self, holding: list[str] | None = None) -> list[str]:
        self.session = f"s{next(self._sessions)}"
        return self.register(holding)

    def claim(self, most: int = 1, request: str | None = None, **how: Any) -> list[str]:
        """The attempts that were given."""
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
            request_id=request or f"{self.session}-{next(self._requests)}",
            free=free or self.capacity,
            max=most,
            wait_seconds=wait,
            ahead=ahead,
        )
        answer = workers.claim(self.pool.ctx, self.actor, self.name, body)
        given = answer.assignments if isinstance(answer, m.Claimed) else []
        self.holding += [assignment.attempt for assignment in given if assignment.attempt not in self.holding]
        return given

    def beat(self, *attempts: str, state: str = "open", reason: str = "", **progress: Any) -> dict[str, str]:
        holding = [m.Held(attempt=attempt, **progress) for attempt in attempts or self.holding]
        body = m.Heartbeat(session=self.session, holding=holding, state=state, reason=reason)  # type: ignore[arg-type]
        return workers.heartbeat(self.pool.ctx, self.actor, self.name, body).attempts  # type: ignore[return-value]

    def start(self, most: int = 1) -> list[str]:
        """Claim and confirm."""
        given = self.claim(most)
        if given:
            self.beat(*given)
        return given

    def finish(self, attempt: str, outcome: str = "succeeded", **fields: Any) -> str:
        default = {"exit_code": 0} if outcome == "succeeded" else {"exit_code": 1} if outcome == "failed" else {}
        result = m.Result(attempt=attempt, outcome=outcome, **{**default, **fields})  # type: ignore[arg-type]
        body = m.Finish(session=self.session, results=[result])
        answer = workers.finish(self.pool.ctx, self.actor, self.name, body).results[attempt]
        if answer != "missing_blobs" and attempt in self.holding:
            self.holding.remove(attempt)
        return answer

    def write_log(self, attempt: str, data: bytes, offset: int = 0) -> int:
        job, number = attempt.split("/")
        run, index = job.split(".")
        return logs.append(
            self.pool.ctx, self.actor, int(run), int(index), int(number), offset, data, self.session
        ).size

    def leave(self) -> None:
        workers.leave(self.pool.ctx, self.actor, self.name)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database: the same tests for SQLite and for PostgreSQL."""
    return "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def make_pool(tmp_path: Path, database: str) -> Iterator[Any]:
    pools: list[Pool] = []

    def make(**settings: Any) -> Pool:
        pools.append(Pool(tmp_path, database, **settings))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def pool(make_pool: Any) -> Pool:
    return make_pool()  # type: ignore[no-any-return]
