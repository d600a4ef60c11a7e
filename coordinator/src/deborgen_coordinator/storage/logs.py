"""Log bytes. While an attempt runs they are chunks in the database, which every process can read; then one blob."""

from __future__ import annotations

from typing import Any

from peewee import Case, fn

from deborgen_shared.states import Outcome, State

from . import hot
from .database import DatabaseConnection
from .models import Attempt, Job, LogChunk
from .transactions import Tx

#: The largest chunk in bytes: small, so that reading a few bytes never loads many.
CHUNK = 256 * 1024


def _attempt(job: int, number: int) -> Any:
    return (Attempt.job == job) & (Attempt.number == number)


def append(tx: Tx, job: int, number: int, offset: int, data: bytes) -> int:
    """Append bytes that start where the log ends; return the new size. The caller has checked the offset."""
    cuts = range(0, len(data), CHUNK)
    hot.add_log_chunk.run_many(tx, [(job, number, offset + at, data[at : at + CHUNK]) for at in cuts])
    size = offset + len(data)
    hot.set_log_size.run(tx, size, job, number)
    return size


#: The number of an attempt, the size of its log, whether the log is complete, and the blob that holds it once it is
#: sealed.
LogState = tuple[int, int, bool, str | None]

_STATE = (Attempt.number, Attempt.log_size, Attempt.outcome, Attempt.announced_size, Attempt.log_digest)


def _state(number: int, size: int, outcome: str | None, announced: int | None, digest: str | None) -> LogState:
    return number, size, outcome is not None and (announced is None or size >= announced), digest


def view(reader: DatabaseConnection, job: int, number: int | None) -> LogState | None:
    """The log of one attempt, of the newest if no number is given."""
    query = Attempt.select(*_STATE).where(Attempt.job == job).order_by(Attempt.number.desc()).limit(1)
    row = reader.one(query if number is None else query.where(Attempt.number == number))
    return None if row is None else _state(*row)


def views(reader: DatabaseConnection, jobs: list[int]) -> list[tuple[int, LogState]]:
    """The logs of all attempts of these jobs, each with its job."""
    query = Attempt.select(Attempt.job, *_STATE).where(Attempt.job.in_(jobs))
    return [(job, _state(*row)) for job, *row in reader.rows(query)]


def read(reader: DatabaseConnection, job: int, number: int, offset: int, limit: int) -> bytes:
    """At most `limit` bytes of the chunks, starting at `offset`."""
    query = LogChunk.select(LogChunk.first, LogChunk.data).where(
        LogChunk.job == job, LogChunk.number == number, LogChunk.first > offset - CHUNK, LogChunk.first < offset + limit
    )
    parts = [
        bytes(data)[max(0, offset - first) : offset + limit - first]
        for first, data in reader.rows(query.order_by(LogChunk.first))
        if first + len(data) > offset
    ]
    return b"".join(parts)


def ready_to_seal(
    reader: DatabaseConnection, before: float, most: int, ended_before: float | None = None
) -> list[tuple[int, int, int]]:
    """The logs of ended attempts that are complete, or that ended before the time `before`: job, number, size.

    With `ended_before`, attempts that ended later are left out.

    The log of a lost attempt is left out while its job is queued: the attempt may be resumed, and then writes more.
    """
    unsealed = Attempt.outcome.is_null(False) & (Attempt.log_size > 0) & Attempt.log_digest.is_null()
    complete = (Attempt.log_size >= Attempt.announced_size) | (Attempt.finished_at < before)
    still_queued = Job.select(Job.id).where(
        Job.id == Attempt.job, Job.state == State.QUEUED.value, Job.last_attempt == Attempt.number
    )
    may_resume = (Attempt.outcome == Outcome.LOST.value) & fn.EXISTS(still_queued)
    query = Attempt.select(Attempt.job, Attempt.number, Attempt.log_size).where(unsealed, complete, ~may_resume)
    if ended_before is not None:
        query = query.where(Attempt.finished_at < ended_before)
    return reader.rows(query.order_by(Attempt.finished_at).limit(most))


def seal(tx: Tx, job: int, number: int, size: int, digest: str) -> bool:
    """Replace the chunks by the blob; False if the log has grown meanwhile or the attempt is live again."""
    ended = Attempt.outcome.is_null(False) & Attempt.log_digest.is_null() & (Attempt.log_size == size)
    done = tx.run(Attempt.update({Attempt.log_digest: digest}).where(_attempt(job, number), ended))
    if done:
        tx.run(LogChunk.delete().where(LogChunk.job == job, LogChunk.number == number))
    return done == 1


def announced_size(tx: Tx, job: int, number: int) -> int | None:
    """The log's size as the attempt's result announced it; for a sealed log, the actual size."""
    size = Case(None, [(Attempt.log_digest.is_null(), Attempt.announced_size)], Attempt.log_size)
    row = tx.one(Attempt.select(size).where(_attempt(job, number)))
    return row[0] if row else None
