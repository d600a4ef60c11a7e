"""Log bytes: chunks in the database while an attempt runs, so that every process can read them; afterwards one blob."""

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


def view(reader: DatabaseConnection, job: int, number: int | None) -> tuple[int, int, bool, str | None] | None:
    """The log of one attempt (of the newest, if no number is given): the attempt's number, the log's size, whether it
    is complete, and the blob that holds it once it is sealed."""
    query = Attempt.select(Attempt.number, Attempt.log_size, Attempt.outcome, Attempt.log_told, Attempt.log_digest)
    query = query.where(Attempt.job == job).order_by(Attempt.number.desc()).limit(1)
    row = reader.one(query if number is None else query.where(Attempt.number == number))
    if row is None:
        return None
    found, size, outcome, announced, digest = row
    return found, size, outcome is not None and (announced is None or size >= announced), digest


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


def ready_to_seal(reader: DatabaseConnection, before: float, most: int) -> list[tuple[int, int, int]]:
    """The logs of ended attempts that are complete, or whose attempt ended before this moment: job, number, size.

    A lost attempt whose job was not claimed again may be resumed, and then writes more. Its log is not sealed.
    """
    unsealed = Attempt.outcome.is_null(False) & (Attempt.log_size > 0) & Attempt.log_digest.is_null()
    complete = (Attempt.log_size >= Attempt.log_told) | (Attempt.finished_at < before)
    still_queued = Job.select(Job.id).where(
        Job.id == Attempt.job, Job.state == State.QUEUED.value, Job.last_attempt == Attempt.number
    )
    may_resume = (Attempt.outcome == Outcome.LOST.value) & fn.EXISTS(still_queued)
    query = Attempt.select(Attempt.job, Attempt.number, Attempt.log_size).where(unsealed, complete, ~may_resume)
    return reader.rows(query.order_by(Attempt.finished_at).limit(most))


def seal(tx: Tx, job: int, number: int, size: int, digest: str) -> bool:
    """Replace the chunks by the blob; False if the log has grown meanwhile or the attempt is live again."""
    ended = Attempt.outcome.is_null(False) & Attempt.log_digest.is_null() & (Attempt.log_size == size)
    done = tx.run(Attempt.update({Attempt.log_digest: digest}).where(_attempt(job, number), ended))
    if done:
        tx.run(LogChunk.delete().where(LogChunk.job == job, LogChunk.number == number))
    return done == 1


def announced_size(tx: Tx, job: int, number: int) -> int | None:
    """The log's size as the attempt's result announced it. For a sealed log, its actual size."""
    size = Case(None, [(Attempt.log_digest.is_null(), Attempt.log_told)], Attempt.log_size)
    row = tx.one(Attempt.select(size).where(_attempt(job, number)))
    return row[0] if row else None
