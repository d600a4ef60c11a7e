"""Workers and their sessions."""

from __future__ import annotations

import json
from typing import Any

from peewee import fn

from deborgen_shared.states import WorkerState

from . import hot
from .database import DatabaseConnection
from .models import Session, Worker
from .rows import WorkerRow, builder, columns
from .transactions import Tx

_worker = builder(WorkerRow)


def get(reader: Tx | DatabaseConnection, name: str, *, lock: bool = False) -> WorkerRow | None:
    row = (hot.lock_worker if lock else hot.worker_named).one(reader, name)
    return _worker(row) if row else None


def list_all(reader: Tx | DatabaseConnection) -> list[WorkerRow]:
    query = Worker.select(*columns(WorkerRow, Worker)).order_by(Worker.name)
    return [_worker(row) for row in reader.rows(query)]


def count_online(reader: Tx | DatabaseConnection) -> int:
    return int(reader.value(Worker.select(fn.COUNT(Worker.id)).where(Worker.online == 1)))


def save(tx: Tx, name: str, *, seen_clock: float, now: float, **columns: Any) -> None:
    """Store a worker as its registration describes it: insert its row, or update it. `columns` are its session,
    hostname, version, labels, capacity and metrics."""
    columns |= {
        "free": columns["capacity"], "state": WorkerState.OPEN.value, "reason": "", "until_at": None, "online": 1,
        "seen_clock": seen_clock, "seen_at": now,
    }  # fmt: skip
    new = Worker.insert(name=name, **columns)
    tx.run(new.on_conflict(conflict_target=[Worker.name], preserve=[getattr(Worker, each) for each in columns]))


def record_heartbeat(tx: Tx, worker_id: int, *, seen_clock: float, now: float, **columns: Any) -> None:
    """Store what a heartbeat reports: state, reason, until, free, metrics. Without metrics, the last ones stay."""
    values = (columns[name] for name in ("state", "reason", "until", "free", "metrics"))
    hot.record_heartbeat.run(tx, *values, seen_clock, now, worker_id)


def _update(tx: Tx, worker_id: int, **columns: Any) -> None:
    tx.run(Worker.update(columns).where(Worker.id == worker_id))


def steer(tx: Tx, worker_id: int, *, paused: bool, drain: bool) -> None:
    _update(tx, worker_id, paused=int(paused), drain=int(drain))


def leave(tx: Tx, worker_id: int, reason: str) -> None:
    _update(tx, worker_id, state=WorkerState.LEFT.value, reason=reason, until_at=None, online=0)


def mark_silent_offline(tx: Tx, before_clock: float) -> list[str]:
    """Mark online workers as offline if their last heartbeat is older than this; return their names."""
    return sorted(name for (name,) in hot.silent_workers.rows(tx, before_clock))


def set_failures(tx: Tx, worker: WorkerRow) -> None:
    """Store the worker's failures in a row, and its pauses because of them."""
    _update(
        tx, worker.id,
        failures=worker.failures, failed=worker.failed, rests=worker.rests, rest_clock=worker.rest_clock,
    )  # fmt: skip


def lost_by_session(tx: Tx, worker_id: int, session: str) -> list[str] | None:
    """The attempts that the registration of this session reported as lost; None if the session is unknown."""
    row = tx.one(Session.select(Session.lost).where(Session.worker == worker_id, Session.id == session))
    return list(json.loads(row[0])) if row else None


def add_session(tx: Tx, worker_id: int, session: str, lost: list[str], now: float) -> None:
    tx.run(Session.insert(worker=worker_id, id=session, started_at=now, lost=json.dumps(lost)))


def mark_all_seen(tx: Tx, clock: float) -> None:
    """Count every online worker as seen now: while the clock stood still, no heartbeat could arrive."""
    tx.run(Worker.update({Worker.seen_clock: clock}).where(Worker.online == 1))
