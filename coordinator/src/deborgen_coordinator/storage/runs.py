"""Rows of runs, and the counts of their jobs that they carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import peewee

from deborgen_shared.states import State

from .database import Connection
from .rows import RunRow, columns
from .transactions import Tx

COLUMNS = columns(RunRow, submitter="submitter_id")
RUN: Any = peewee.Table("run", COLUMNS)
SUBMITTER: Any = peewee.Table("submitter", ("id", "name"))
RUN_LABEL: Any = peewee.Table("run_label", ("run_id", "name", "value"))
RUNS = RUN.select(*(SUBMITTER.name if column == "submitter_id" else getattr(RUN, column) for column in COLUMNS)).join(
    SUBMITTER, on=(RUN.submitter_id == SUBMITTER.id)
)

#: The columns of a run that count its jobs, one per state, in the order of the statement that moves them.
COUNTS = (State.QUEUED, State.RUNNING, State.SUCCEEDED, State.FAILED, State.CANCELED)

#: The derived state of a run, as a condition on its counts.
STATE_CONDITIONS: dict[str, Any] = {
    State.QUEUED: (RUN.finished_at.is_null()) & (RUN.queued == RUN.jobs),
    State.RUNNING: (RUN.finished_at.is_null()) & (RUN.queued < RUN.jobs),
    State.FAILED: (RUN.finished_at.is_null(False)) & (RUN.failed > 0),
    State.CANCELED: (RUN.finished_at.is_null(False)) & (RUN.failed == 0) & (RUN.canceled > 0),
    State.SUCCEEDED: (RUN.finished_at.is_null(False)) & (RUN.succeeded == RUN.jobs),
}

MOVE = (
    "UPDATE run SET queued = queued + ?, running = running + ?, succeeded = succeeded + ?, failed = failed + ?,"
    " canceled = canceled + ?, finished_at = CASE WHEN queued + running + ? = 0 THEN ? END WHERE id = ?"
)
BRIEF = (
    f"SELECT {', '.join(columns(RunRow, id='run.id', name='run.name', submitter='submitter.name'))}"
    " FROM run JOIN submitter ON submitter.id = run.submitter_id"
)
JOB_COUNTS = f"SELECT {', '.join(f'COALESCE(sum({state}), 0)' for state in COUNTS)} FROM run"


def submitter_id(tx: Tx, name: str) -> int:
    """The submitter's number; a new one gets one."""
    row = tx.one("SELECT id FROM submitter WHERE name = ?", (name,))
    if row is None:
        tx.run("INSERT INTO submitter (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
        return int(tx.value("SELECT id FROM submitter WHERE name = ?", (name,)))
    return int(row[0])


def submission(tx: Tx, submitter: int, key: str) -> tuple[str, int] | None:
    """What was submitted under an idempotency key: the body's digest, and the run."""
    return tx.one("SELECT digest, run_id FROM submission WHERE submitter_id = ? AND key = ?", (submitter, key))


def remember_submission(tx: Tx, submitter: int, key: str, digest: str, run: int) -> bool:
    """Whether this run is the one that the key stands for; False when another process was first."""
    sql = "INSERT INTO submission (submitter_id, key, digest, run_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    return tx.run(sql, (submitter, key, digest, run)) == 1


def insert(
    tx: Tx,
    *,
    name: str,
    submitter: str,
    submitter_id: int,
    labels: str,
    warnings: str,
    retry_of: int | None,
    jobs: int,
    steps: int,
    now: float,
) -> RunRow:
    """A new run. All its jobs are queued."""
    run = tx.value(
        "INSERT INTO run (name, submitter_id, labels, warnings, retry_of, jobs, steps, queued, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (name, submitter_id, labels, warnings, retry_of, jobs, steps, jobs, now),
    )
    return RunRow(run, name, submitter, labels, warnings, retry_of, jobs, steps, jobs, 0, 0, 0, 0, now, None)


def add_labels(tx: Tx, run: int, labels: Mapping[str, str]) -> None:
    tx.many(
        "INSERT INTO run_label (run_id, name, value) VALUES (?, ?, ?)",
        [(run, name, value) for name, value in labels.items()],
    )


def move(tx: Tx, changes: Mapping[int, Mapping[str, int]], now: float) -> None:
    """Move the counts of runs. All its jobs being terminal is what finishes a run."""
    rows = []
    for run, moved in sorted(changes.items()):
        change = [moved.get(state, 0) for state in COUNTS]
        if any(change):
            rows.append((*change, change[0] + change[1], now, run))
    if rows:
        tx.many(MOVE, rows)


def get(reader: Tx | Connection, run: int) -> RunRow | None:
    rows = select(reader, run=run, limit=1)
    return rows[0] if rows else None


def get_briefs(tx: Tx, runs: Iterable[int]) -> dict[int, RunRow]:
    """Runs that are known to be there, by one short statement: claims look up many."""
    wanted = list(runs)
    rows = tx.rows(f"{BRIEF} WHERE run.id IN ({', '.join('?' * len(wanted))})", wanted)
    return {row[0]: RunRow(*row) for row in rows}


def get_brief(tx: Tx, run: int) -> RunRow:
    return get_briefs(tx, [run])[run]


def select(
    reader: Tx | Connection,
    *,
    run: int | None = None,
    state: str | None = None,
    submitter: str | None = None,
    label: tuple[str, str | None] | None = None,
    cursor: int | None = None,
    limit: int,
) -> list[RunRow]:
    """Runs that fit all that is given, newest first, from behind the cursor on. A label may be a name alone."""
    query = RUNS.order_by(RUN.id.desc()).limit(limit)
    if run is not None:
        query = query.where(RUN.id == run)
    if state is not None:
        query = query.where(STATE_CONDITIONS[state])
    if submitter is not None:
        query = query.where(SUBMITTER.name == submitter)
    if label is not None:
        labelled = RUN_LABEL.select(RUN_LABEL.run_id).where(RUN_LABEL.name == label[0])
        if label[1] is not None:
            labelled = labelled.where(RUN_LABEL.value == label[1])
        query = query.where(RUN.id.in_(labelled))
    if cursor is not None:
        query = query.where(RUN.id < cursor)
    connection = reader.connection if isinstance(reader, Tx) else reader
    return [RunRow(*row) for row in connection.query(query)]


def count_jobs(reader: Connection) -> dict[str, int]:
    """How many jobs are in each state, without a scan of the jobs: runs carry their counts."""
    counts = reader.rows(JOB_COUNTS)[0]
    return {state.value: int(count) for state, count in zip(COUNTS, counts, strict=True)}
