"""Workers and their sessions, and the lease clock."""

from __future__ import annotations

import json
from typing import Any

from peewee import fn

from deborgen_shared.states import WorkerState

from . import hot
from .database import Connection
from .models import LeaseClock, Session, Worker
from .rows import WorkerRow, builder, columns
from .statements import Locked
from .transactions import Tx

_worker = builder(WorkerRow)


def clock(reader: Tx | Connection) -> float:
    """Where the lease clock stands."""
    return float(hot.lease_clock.value(reader))


def sweeper(tx: Tx) -> tuple[float, str, int]:
    """Where the lease clock stands, who moves it, and how many turns were made; kept from other sweepers."""
    [(value, sweeper, turns)] = tx.rows(
        Locked(LeaseClock.select(LeaseClock.value, LeaseClock.sweeper, LeaseClock.turns))
    )
    return value, sweeper, turns


def turn(tx: Tx, value: float, sweeper: str) -> None:
    hot.move_lease_clock.run(tx, value, sweeper)


def get(reader: Tx | Connection, name: str, *, lock: bool = False) -> WorkerRow | None:
    row = (hot.hold_worker if lock else hot.worker_named).one(reader, name)
    return _worker(row) if row else None


def every(reader: Tx | Connection) -> list[WorkerRow]:
    query = Worker.select(*columns(WorkerRow, Worker)).order_by(Worker.name)
    return [_worker(row) for row in reader.rows(query)]


def count_online(reader: Tx | Connection) -> int:
    return int(reader.value(Worker.select(fn.COUNT(Worker.id)).where(Worker.online == 1)))


def save(tx: Tx, name: str, *, seen_clock: float, now: float, **columns: Any) -> None:
    """A worker as it registers itself: made anew, or brought up to date. `columns` are its session, hostname, version,
    labels, capacity and metrics."""
    columns |= {
        "free": columns["capacity"], "state": WorkerState.OPEN.value, "reason": "", "until_at": None, "online": 1,
        "seen_clock": seen_clock, "seen_at": now,
    }  # fmt: skip
    new = Worker.insert(name=name, **columns)
    tx.run(new.on_conflict(conflict_target=[Worker.name], preserve=[getattr(Worker, each) for each in columns]))


def seen(tx: Tx, worker_id: int, *, seen_clock: float, now: float, **columns: Any) -> None:
    """A worker as its heartbeat describes it: state, reason, until, free, metrics. One that tells no metrics keeps the
    last ones."""
    told = (columns[name] for name in ("state", "reason", "until", "free", "metrics"))
    hot.see_worker.run(tx, *told, seen_clock, now, worker_id)


def _update(tx: Tx, worker_id: int, **columns: Any) -> None:
    tx.run(Worker.update(columns).where(Worker.id == worker_id))


def steer(tx: Tx, worker_id: int, *, paused: bool, drain: bool) -> None:
    _update(tx, worker_id, paused=int(paused), drain=int(drain))


def leave(tx: Tx, worker_id: int, reason: str) -> None:
    _update(tx, worker_id, state=WorkerState.LEFT.value, reason=reason, until_at=None, online=0)


def go_offline(tx: Tx, before_clock: float) -> list[str]:
    """Workers not heard of since then are offline; those that were not yet."""
    return sorted(name for (name,) in hot.silent_workers.rows(tx, before_clock))


def set_failures(tx: Tx, worker_id: int, failures: int, rests: int, rest_clock: float) -> None:
    _update(tx, worker_id, failures=failures, rests=rests, rest_clock=rest_clock)


def session(tx: Tx, worker_id: int, session: str) -> list[str] | None:
    """What the registration of this session said was lost; None for a session never seen."""
    row = tx.one(Session.select(Session.lost).where(Session.worker == worker_id, Session.id == session))
    return list(json.loads(row[0])) if row else None


def add_session(tx: Tx, worker_id: int, session: str, lost: list[str], now: float) -> None:
    tx.run(Session.insert(worker=worker_id, id=session, started_at=now, lost=json.dumps(lost)))


def probe(tx: Tx) -> None:
    """Write something that changes nothing, to see that writing works."""
    tx.run(LeaseClock.update({LeaseClock.value: LeaseClock.value}))


def see_all(tx: Tx, clock: float) -> None:
    """Count every worker that was online as seen now: while the clock stood still nobody could be heard."""
    tx.run(Worker.update({Worker.seen_clock: clock}).where(Worker.online == 1))
