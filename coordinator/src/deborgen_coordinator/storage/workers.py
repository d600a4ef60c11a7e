"""Rows of workers and their sessions, and the lease clock."""

from __future__ import annotations

import json

from deborgen_shared.states import WorkerState

from .database import Connection
from .rows import WorkerRow, builder, columns
from .transactions import Tx

COLUMNS = ", ".join(columns(WorkerRow))
_row = builder(WorkerRow)


def clock(reader: Tx | Connection) -> float:
    """Where the lease clock stands."""
    return float(reader.value("SELECT value FROM lease_clock"))


def sweeper(tx: Tx) -> tuple[float, str, int]:
    """Where the lease clock stands, who moves it, and how many turns were made; kept from other sweepers."""
    value, sweeper, turns = tx.rows("SELECT value, sweeper, turns FROM lease_clock" + tx.for_update)[0]
    return value, sweeper, turns


def turn(tx: Tx, value: float, sweeper: str) -> None:
    tx.run("UPDATE lease_clock SET value = ?, sweeper = ?, turns = turns + 1", (value, sweeper))


def get(reader: Tx | Connection, name: str, *, lock: bool = False) -> WorkerRow | None:
    sql = f"SELECT {COLUMNS} FROM worker WHERE name = ?"
    if lock and isinstance(reader, Tx):
        sql += reader.for_update
    row = reader.one(sql, (name,))
    return _row(row) if row else None


def every(reader: Tx | Connection) -> list[WorkerRow]:
    return [_row(row) for row in reader.rows(f"SELECT {COLUMNS} FROM worker ORDER BY name")]


def count_online(reader: Tx | Connection) -> int:
    return int(reader.value("SELECT count(*) FROM worker WHERE online = 1"))


def save(
    tx: Tx,
    name: str,
    *,
    session: str,
    hostname: str,
    version: str,
    labels: str,
    capacity: str,
    metrics: str | None,
    seen_clock: float,
    now: float,
) -> None:
    """A worker as it registers itself: made anew, or brought up to date."""
    tx.run(
        "INSERT INTO worker (name, session, hostname, version, labels, capacity, free, metrics, state, reason, online,"
        " seen_clock, seen_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', 1, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET session = excluded.session, hostname = excluded.hostname,"
        " version = excluded.version, labels = excluded.labels, capacity = excluded.capacity, free = excluded.free,"
        " metrics = excluded.metrics, state = excluded.state, reason = '', until_at = NULL, online = 1,"
        " seen_clock = excluded.seen_clock, seen_at = excluded.seen_at",
        (name, session, hostname, version, labels, capacity, capacity, metrics, WorkerState.OPEN, seen_clock, now),
    )


def seen(
    tx: Tx,
    worker_id: int,
    *,
    state: WorkerState,
    reason: str,
    until: float | None,
    free: str,
    metrics: str | None,
    seen_clock: float,
    now: float,
) -> None:
    """A worker as its heartbeat describes it. One that tells no metrics keeps the last ones."""
    tx.run(
        "UPDATE worker SET state = ?, reason = ?, until_at = ?, free = ?, metrics = COALESCE(?, metrics), online = 1,"
        " seen_clock = ?, seen_at = ? WHERE id = ?",
        (state, reason, until, free, metrics, seen_clock, now, worker_id),
    )


def steer(tx: Tx, worker_id: int, *, paused: bool, drain: bool) -> None:
    tx.run("UPDATE worker SET paused = ?, drain = ? WHERE id = ?", (int(paused), int(drain), worker_id))


def leave(tx: Tx, worker_id: int, reason: str) -> None:
    sql = "UPDATE worker SET state = ?, reason = ?, until_at = NULL, online = 0 WHERE id = ?"
    tx.run(sql, (WorkerState.LEFT, reason, worker_id))


def go_offline(tx: Tx, before_clock: float) -> list[str]:
    """Workers not heard of since then are offline; those that were not yet."""
    rows = tx.rows("UPDATE worker SET online = 0 WHERE online = 1 AND seen_clock < ? RETURNING name", (before_clock,))
    return sorted(row[0] for row in rows)


def set_failures(tx: Tx, worker_id: int, failures: int, rests: int, rest_clock: float) -> None:
    tx.run(
        "UPDATE worker SET failures = ?, rests = ?, rest_clock = ? WHERE id = ?",
        (failures, rests, rest_clock, worker_id),
    )


def session(tx: Tx, worker_id: int, session: str) -> list[str] | None:
    """What the registration of this session said was lost; None for a session never seen."""
    row = tx.one("SELECT lost FROM session WHERE worker_id = ? AND id = ?", (worker_id, session))
    return list(json.loads(row[0])) if row else None


def add_session(tx: Tx, worker_id: int, session: str, lost: list[str], now: float) -> None:
    tx.run(
        "INSERT INTO session (worker_id, id, started_at, lost) VALUES (?, ?, ?, ?)",
        (worker_id, session, now, json.dumps(lost)),
    )


def probe(tx: Tx) -> None:
    """Write something that changes nothing, to see that writing works."""
    tx.run("UPDATE lease_clock SET value = value")


def see_all(tx: Tx, clock: float) -> None:
    """Count every worker that was online as seen now: while the clock stood still nobody could be heard."""
    tx.run("UPDATE worker SET seen_clock = ? WHERE online = 1", (clock,))
