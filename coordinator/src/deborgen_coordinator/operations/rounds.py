"""The rounds of a loop: the jobs with which it goes on, and the work of earlier rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import ids
from ..loops import Place
from ..storage import rounds, runs, specs
from ..storage.database import DatabaseConnection
from ..storage.rows import HeldAttempt, RunRow
from ..storage.transactions import Tx

if TYPE_CHECKING:
    from .work import Work


class DueJob(NamedTuple):
    """The job at this place is due, because `after` has ended."""

    after: HeldAttempt
    place: Place


def lineage(reader: Tx | DatabaseConnection, owner: RunRow) -> Iterator[RunRow]:
    """A run, the run of which it is a retry, and so on."""
    yield owner
    while owner.retry_of is not None:
        owner = runs.get_existing(reader, owner.retry_of)
        yield owner


def find_work(reader: Tx | DatabaseConnection, owner: RunRow, place: Place) -> int | None:
    """The job that did the work of a round, in this run or in the newest of those of which it is a retry."""
    index = ids.index_of(place.point)
    found = (rounds.work_of(reader, ids.key(run.id, index), place.round) for run in lineage(reader, owner))
    return next((job for job in found if job is not None), None)


def add_jobs(work: Work, run: int, step: int, due: Sequence[DueJob]) -> None:
    """Add the due jobs of a step to its run. After a cancel, they are canceled at once.

    The caller holds the lock of the step, so no other transaction takes the same index.
    """
    tx = work.tx
    index = runs.get_existing(tx, run).next_index + work.added[run]
    specs.add_jobs_to_step(tx, run, step, len(due))
    work.added[run] += len(due)
    for key, (after, place) in enumerate(due, ids.key(run, index)):
        rounds.add(tx, key, after.job, place, work.now)
        work.record_queued(key, place)
        if after.cancel_requested:
            work.cancel_queued(key, key, after.cancel_reason)
        else:
            work.wake("jobs")
