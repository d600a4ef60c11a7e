"""What people used of machines, in stretches of time, and how deep the queue was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from peewee import fn

from . import hot
from .database import DatabaseConnection
from .models import QueueDepth, Run, Spent, Submitter, Worker
from .transactions import Tx


class UsageRow(NamedTuple):
    """What a person used of a machine, summed over stretches."""

    person: str
    machine: str
    labels: str
    attempts: int
    seconds: float
    cores: float
    gpus: float
    memory: float


class StretchRow(NamedTuple):
    """What ended, and what was used, on a machine in a short stretch of time."""

    begin: int
    worker_id: int
    attempts: int
    succeeded: int
    cores: float


class DepthRow(NamedTuple):
    minute: int
    queued: int
    running: int


_SUMS = (
    Spent.attempts,
    Spent.succeeded,
    Spent.seconds,
    Spent.cores,
    Spent.gpus,
    Spent.memory,
)


def add(tx: Tx, rows: Sequence[Sequence[Any]]) -> None:
    """Add to the sums of stretches. Each row holds the values of `hot.add_usage`."""
    hot.add_usage.run_many(tx, rows)


def totals(reader: DatabaseConnection, since: int) -> list[UsageRow]:
    """The sums of each person and machine over the stretches that began then or later."""
    columns = (Spent.attempts, Spent.seconds, Spent.cores, Spent.gpus, Spent.memory)
    sums = Spent.select(Spent.submitter, Spent.worker, *(fn.SUM(each).alias(each.column_name) for each in columns))
    sums = sums.where(Spent.begin >= since).group_by(Spent.submitter, Spent.worker).alias("sums")
    found = (getattr(sums.c, each.column_name) for each in columns)
    query = Submitter.select(Submitter.name, Worker.name, Worker.labels, *found)
    query = query.join(sums, on=(sums.c.submitter_id == Submitter.id))
    query = query.join(Worker, on=(Worker.id == sums.c.worker_id)).order_by(Submitter.name, Worker.name)
    return [UsageRow(*row) for row in reader.rows(query)]


def stretches(reader: DatabaseConnection, since: float, length: int, worker_id: int | None = None) -> list[StretchRow]:
    """The short stretches of machines that began then or later, in order."""
    query = Spent.select(
        Spent.begin,
        Spent.worker,
        fn.SUM(Spent.attempts),
        fn.SUM(Spent.succeeded),
        fn.SUM(Spent.cores),
    )
    query = query.where(Spent.begin >= since, Spent.length == length)
    if worker_id is not None:
        query = query.where(Spent.worker == worker_id)
    query = query.group_by(Spent.begin, Spent.worker).order_by(Spent.begin)
    return [
        StretchRow(begin, worker, int(attempts), int(succeeded), cores)
        for begin, worker, attempts, succeeded, cores in reader.rows(query)
    ]


def merge(tx: Tx, before: int, length: int, day: int) -> int:
    """Add the short stretches that began before this time to whole days; return the number of short ones."""
    old = (Spent.begin < before) & (Spent.length == length)
    keys = (Spent.begin, Spent.worker, Spent.submitter)
    rows = tx.rows(Spent.select(*keys, *_SUMS).where(old).order_by(*keys).limit(MOST_MERGED))
    add(tx, [(begin - begin % day, day, *others) for begin, *others in rows])
    for begin, worker, submitter, *_ in rows:
        this = (Spent.begin == begin) & (Spent.worker == worker) & (Spent.submitter == submitter)
        tx.run(Spent.delete().where(this, Spent.length == length))
    return len(rows)


#: Merge at most this many stretches in one transaction.
MOST_MERGED = 100


def note_depth(tx: Tx, minute: int, depth: tuple[int, int], keep: int) -> None:
    """Store how many jobs were queued and running in a minute, and forget what is older than the minute `keep`."""
    row = {QueueDepth.minute: minute, QueueDepth.queued: depth[0], QueueDepth.running: depth[1]}
    tx.run(QueueDepth.insert(row).on_conflict(action="nothing", conflict_target=[QueueDepth.minute]))
    tx.run(QueueDepth.delete().where(QueueDepth.minute < keep))


def depths(reader: DatabaseConnection, since: int) -> list[DepthRow]:
    """The depth of the queue in each minute from this one on."""
    query = QueueDepth.select(QueueDepth.minute, QueueDepth.queued, QueueDepth.running)
    return [DepthRow(*row) for row in reader.rows(query.where(QueueDepth.minute >= since).order_by(QueueDepth.minute))]


def depth_now(reader: DatabaseConnection) -> tuple[int, int]:
    """How many jobs are queued and running now. It reads the unfinished runs only."""
    counts = Run.select(fn.COALESCE(fn.SUM(Run.queued), 0), fn.COALESCE(fn.SUM(Run.running), 0))
    [(queued, running)] = reader.rows(counts.where(Run.finished_at.is_null()))
    return int(queued), int(running)
