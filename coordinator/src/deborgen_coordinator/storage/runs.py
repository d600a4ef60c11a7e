"""Runs, with the counts of their jobs that they carry; who submits them, and under which key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from peewee import fn

from deborgen_shared.states import State

from . import hot
from .database import Connection
from .models import Run, RunLabel, Submitter
from .rows import RunRow, columns
from .transactions import Tx

#: The columns of a run that count its jobs, one per state, in the order of the statement that moves them.
COUNTS = (State.QUEUED, State.RUNNING, State.SUCCEEDED, State.FAILED, State.CANCELED)

#: The derived state of a run, as a condition on its counts.
FINISHED = Run.finished_at.is_null(False)
STATE_CONDITIONS: dict[str, Any] = {
    State.QUEUED: Run.finished_at.is_null() & (Run.queued == Run.jobs),
    State.RUNNING: Run.finished_at.is_null() & (Run.queued < Run.jobs),
    State.FAILED: FINISHED & (Run.failed > 0),
    State.CANCELED: FINISHED & (Run.failed == 0) & (Run.canceled > 0),
    State.SUCCEEDED: FINISHED & (Run.succeeded == Run.jobs),
}


def submitter_id(tx: Tx, name: str) -> int:
    """The submitter's number; a new one gets one."""
    known = Submitter.select(Submitter.id).where(Submitter.name == name)
    row = tx.one(known)
    if row is None:
        new = Submitter.insert({Submitter.name: name})
        tx.run(new.on_conflict(action="nothing", conflict_target=[Submitter.name]))
        return int(tx.value(known))
    return int(row[0])


def submission(tx: Tx, submitter: int, key: str) -> tuple[str, int] | None:
    """What was submitted under an idempotency key: the body's digest, and the run."""
    return hot.submission_under.one(tx, submitter, key)


def remember_submission(tx: Tx, submitter: int, key: str, digest: str, run: int) -> bool:
    """Whether this run is the one that the key stands for; False when another process was first."""
    return hot.add_submission.run(tx, submitter, key, digest, run) == 1


def insert(tx: Tx, *, submitter_id: int, submitter: str, now: float, **columns: Any) -> RunRow:
    """A new run. All its jobs are queued. `columns` are its name, labels, warnings, retry_of, jobs and steps."""
    name, labels, warnings, retry_of, jobs, steps = (
        columns[column] for column in ("name", "labels", "warnings", "retry_of", "jobs", "steps")
    )
    run = hot.add_run.value(tx, name, submitter_id, labels, warnings, retry_of, jobs, steps, now)
    return RunRow(
        id=run, name=name, submitter=submitter, labels=labels, warnings=warnings, retry_of=retry_of, jobs=jobs,
        steps=steps, queued=jobs, running=0, succeeded=0, failed=0, canceled=0, created_at=now, finished_at=None,
    )  # fmt: skip


def add_labels(tx: Tx, run: int, labels: Mapping[str, str]) -> None:
    hot.add_label.many(tx, [(run, name, value) for name, value in labels.items()])


def move(tx: Tx, changes: Mapping[int, Mapping[str, int]], now: float) -> None:
    """Move the counts of runs. All its jobs being terminal is what finishes a run."""
    rows = []
    for run, moved in sorted(changes.items()):
        change = [moved.get(state, 0) for state in COUNTS]
        if any(change):
            rows.append((*change, change[0] + change[1], now, run))
    if rows:
        hot.move_run.many(tx, rows)


def get(reader: Tx | Connection, run: int) -> RunRow | None:
    return get_briefs(reader, [run]).get(run)


def get_briefs(reader: Tx | Connection, runs: Iterable[int]) -> dict[int, RunRow]:
    """The runs among these that are there, by one statement: claims look up many."""
    wanted = list(runs)
    return {row[0]: RunRow(*row) for row in hot.runs_among(len(wanted)).rows(reader, *wanted)}


def get_brief(tx: Tx, run: int) -> RunRow:
    return get_briefs(tx, [run])[run]


def select(
    reader: Tx | Connection,
    *,
    state: str | None = None,
    submitter: str | None = None,
    label: tuple[str, str | None] | None = None,
    cursor: int | None = None,
    limit: int,
) -> list[RunRow]:
    """Runs that fit all that is given, newest first, from behind the cursor on. A label may be a name alone."""
    query = Run.select(*columns(RunRow, Run, submitter=Submitter.name)).join(Submitter)
    query = query.order_by(Run.id.desc()).limit(limit)
    if state is not None:
        query = query.where(STATE_CONDITIONS[state])
    if submitter is not None:
        query = query.where(Submitter.name == submitter)
    if label is not None:
        name, value = label
        labelled = RunLabel.select(RunLabel.run).where(RunLabel.name == name)
        query = query.where(Run.id.in_(labelled if value is None else labelled.where(RunLabel.value == value)))
    if cursor is not None:
        query = query.where(Run.id < cursor)
    return [RunRow(*row) for row in reader.rows(query)]


def count_jobs(reader: Connection) -> dict[str, int]:
    """How many jobs are in each state, without a scan of the jobs: runs carry their counts."""
    sums = [fn.COALESCE(fn.SUM(getattr(Run, state)), 0) for state in COUNTS]
    [counts] = reader.rows(Run.select(*sums))
    return {state.value: int(count) for state, count in zip(COUNTS, counts, strict=True)}
