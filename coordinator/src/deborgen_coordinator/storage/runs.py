"""Runs with the counts of their jobs, their submitters, and their idempotency keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from peewee import fn

from deborgen_shared.states import State

from . import hot
from .database import DatabaseConnection
from .models import Run, RunLabel, Submitter
from .rows import RunRow, columns
from .transactions import Tx

#: The columns of a run that count its jobs, one per state, in the order of the parameters of `hot.move_run`.
COUNTS = (State.QUEUED, State.RUNNING, State.SUCCEEDED, State.FAILED, State.CANCELED)

#: The condition for each state of a run, which is derived from the run's counts.
FINISHED = Run.finished_at.is_null(False)
STATE_CONDITIONS: dict[str, Any] = {
    State.QUEUED: Run.finished_at.is_null() & (Run.queued == Run.jobs),
    State.RUNNING: Run.finished_at.is_null() & (Run.queued < Run.jobs),
    State.FAILED: FINISHED & (Run.failed > 0) & ((Run.whole_canceled == 0) | (Run.canceled == 0)),
    State.CANCELED: FINISHED & (Run.canceled > 0) & ((Run.failed == 0) | (Run.whole_canceled == 1)),
    State.SUCCEEDED: FINISHED & (Run.succeeded == Run.jobs),
}


def find_submitter(reader: Tx | DatabaseConnection, name: str) -> int | None:
    """The id of a person who has submitted something or set a secret."""
    row = reader.one(Submitter.select(Submitter.id).where(Submitter.name == name))
    return int(row[0]) if row else None


def submitter_id(tx: Tx, name: str) -> int:
    """The submitter's id. A new submitter gets a row."""
    known = find_submitter(tx, name)
    if known is None:
        new = Submitter.insert({Submitter.name: name})
        tx.run(new.on_conflict(action="nothing", conflict_target=[Submitter.name]))
        known = find_submitter(tx, name)
        assert known is not None
    return known


def submission(tx: Tx, submitter: int, key: str) -> tuple[str, int] | None:
    """The digest and the run of the request that used this idempotency key."""
    return hot.submission_under.one(tx, submitter, key)


def remember_submission(tx: Tx, submitter: int, key: str, digest: str, run: int) -> bool:
    """Store the run under the idempotency key; False if another process has just used that key."""
    return hot.add_submission.run(tx, submitter, key, digest, run) == 1


def insert(tx: Tx, *, submitter_id: int, submitter: str, now: float, **columns: Any) -> RunRow:
    """Insert a run whose jobs are all queued. `columns` are its name, labels, warnings, retry_of, jobs, steps, origin,
    next_index, artifact_store, workspace and, if it has one, traceparent."""
    name, labels, warnings, retry_of, jobs, steps, origin, next_index, store, workspace = (
        columns[column]
        for column in (
            "name",
            "labels",
            "warnings",
            "retry_of",
            "jobs",
            "steps",
            "origin",
            "next_index",
            "artifact_store",
            "workspace",
        )
    )
    trace = columns.get(Run.traceparent.name)
    run = hot.add_run.value(
        tx,
        name,
        submitter_id,
        labels,
        warnings,
        retry_of,
        jobs,
        steps,
        now,
        origin,
        next_index,
        store,
        workspace,
        trace,
    )
    return RunRow(
        id=run, name=name, submitter=submitter, labels=labels, warnings=warnings, retry_of=retry_of, jobs=jobs,
        steps=steps, queued=jobs, running=0, succeeded=0, failed=0, canceled=0, created_at=now, finished_at=None,
        whole_canceled=False, origin=origin, next_index=next_index, artifact_store=store, workspace=workspace,
        traceparent=trace,
    )  # fmt: skip


def add_labels(tx: Tx, run: int, labels: Mapping[str, str]) -> None:
    hot.add_label.run_many(tx, [(run, name, value) for name, value in labels.items()])


def change_counts(tx: Tx, changes: Mapping[int, Mapping[str, int]], added: Mapping[int, int], now: float) -> None:
    """Change the counts of runs. A run is finished when all its jobs are terminal. `added` has the number of queued
    jobs that loops have added to a run."""
    rows: list[Sequence[Any]] = []
    for run, moved in sorted(changes.items()):
        if run in added:
            # Two transactions lock their runs in the same order.
            hot.move_run.run_many(tx, rows)
            rows.clear()
            _add_jobs(tx, run, added[run])
        change = [moved.get(state, 0) for state in COUNTS]
        if any(change):
            rows.append((*change, change[0] + change[1], now, run))
    if rows:
        hot.move_run.run_many(tx, rows)


def set_artifact_store(tx: Tx, store: str, most: int = 1000) -> int:
    """Note for some runs that all blobs have been moved; returns the number of runs."""
    others = Run.select(Run.id).where(Run.artifact_store != store).limit(most)
    return tx.run(Run.update({Run.artifact_store: store}).where(Run.id.in_(others)))


def _add_jobs(tx: Tx, run: int, count: int) -> None:
    change = {Run.jobs: Run.jobs + count, Run.queued: Run.queued + count, Run.next_index: Run.next_index + count}
    tx.run(Run.update(change).where(Run.id == run))


def mark_canceled(tx: Tx, run: int) -> None:
    """Remember that a person canceled the whole run. A run that has finished stays as it ended."""
    tx.run(Run.update({Run.whole_canceled: 1}).where((Run.id == run) & Run.finished_at.is_null()))


def get(reader: Tx | DatabaseConnection, run: int) -> RunRow | None:
    return get_many(reader, [run]).get(run)


def is_pruned(tx: Tx, run: int) -> bool:
    """Whether the logs and artifacts of a run have been removed."""
    return bool(tx.rows(Run.select(Run.id).where(Run.id == run, Run.pruned_at.is_null(False))))


def get_many(reader: Tx | DatabaseConnection, runs: Iterable[int]) -> dict[int, RunRow]:
    """The runs that exist, by number. One statement reads them all, because a claim may need many."""
    wanted = list(runs)
    return {row[0]: RunRow(*row) for row in hot.runs_among(len(wanted)).rows(reader, *wanted)}


def retries(reader: DatabaseConnection, run: int) -> list[int]:
    """The retries of a run, their retries and so on, oldest first."""
    query = Run.select(Run.id, Run.retry_of).where(Run.id > run, Run.retry_of >= run).order_by(Run.id)
    found = {run: None}
    for retry, old in reader.rows(query):
        if old in found:
            found[retry] = None
    return list(found)[1:]


def get_existing(reader: Tx | DatabaseConnection, run: int) -> RunRow:
    """A run that must exist."""
    return get_many(reader, [run])[run]


def select(
    reader: Tx | DatabaseConnection,
    *,
    state: str | None = None,
    submitter: str | None = None,
    label: tuple[str, str | None] | None = None,
    cursor: int | None = None,
    limit: int,
) -> list[RunRow]:
    """Runs that match every given filter, newest first, starting after the cursor. A label may be just a name."""
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


def count_jobs(reader: DatabaseConnection) -> dict[str, int]:
    """The number of jobs in each state, summed over the runs' counts, without a scan of the jobs."""
    sums = [fn.COALESCE(fn.SUM(getattr(Run, state)), 0) for state in COUNTS]
    [counts] = reader.rows(Run.select(*sums))
    return {state.value: int(count) for state, count in zip(COUNTS, counts, strict=True)}
