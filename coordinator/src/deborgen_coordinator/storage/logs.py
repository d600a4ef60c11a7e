"""Log bytes: chunks in the database while an attempt runs, so that every process can read them; later one blob."""

from __future__ import annotations

from typing import Any

from peewee import Case, fn

from deborgen_shared.states import Outcome, State

from . import hot
from .database import Connection
from .models import Attempt, Job, LogChunk
from .transactions import Tx

#: Chunks are cut to this size, so that reading a few bytes never loads much.
CHUNK = 256 * 1024


def _attempt(job: int, number: int) -> Any:
    return (Attempt.job == job) & (Attempt.number == number)


def append(tx: Tx, job: int, number: int, offset: int, data: bytes) -> int:
    """Append bytes that start just where the log ends; the new size. The caller has checked the offset."""
    cuts = range(0, len(data), CHUNK)
    hot.add_log_chunk.many(tx, [(job, number, offset + at, data[at : at + CHUNK]) for at in cuts])
    size = offset + len(data)
    hot.set_log_size.run(tx, size, job, number)
    return size


def view(reader: Connection, job: int, number: int | None) -> tuple[int, int, bool, str | None] | None:
    """Of one attempt (the newest, if none is named): number, size, whether no more bytes can come, and the sealed
    blob."""
    query = Attempt.select(Attempt.number, Attempt.log_size, Attempt.outcome, Attempt.log_told, Attempt.log_digest)
    query = query.where(Attempt.job == job).order_by(Attempt.number.desc()).limit(1)
    row = reader.one(query if number is None else query.where(Attempt.number == number))
    if row is None:
        return None
    found, size, outcome, told, digest = row
    return found, size, outcome is not None and (told is None or size >= told), digest


def read(reader: Connection, job: int, number: int, offset: int, limit: int) -> bytes:
    """Bytes from the chunks, at most `limit` of them from `offset` on."""
    query = LogChunk.select(LogChunk.first, LogChunk.data).where(
        LogChunk.job == job, LogChunk.number == number, LogChunk.first > offset - CHUNK, LogChunk.first < offset + limit
    )
    parts = [
        bytes(data)[max(0, offset - first) : offset + limit - first]
        for first, data in reader.rows(query.order_by(LogChunk.first))
        if first + len(data) > offset
    ]
    return b"".join(parts)


def to_seal(reader: Connection, before: float, most: int) -> list[tuple[int, int, int]]:
    """Logs to be sealed: of ended attempts, whole, or ended so long ago that nothing more can come. Job, number, size.

    A lost attempt whose job nobody has claimed since may be taken up again, and then writes on: it is not sealed.
    """
    unsealed = Attempt.outcome.is_null(False) & (Attempt.log_size > 0) & Attempt.log_digest.is_null()
    whole = (Attempt.log_size >= Attempt.log_told) | (Attempt.finished_at < before)
    waits = Job.select(Job.id).where(
        Job.id == Attempt.job, Job.state == State.QUEUED.value, Job.last_attempt == Attempt.number
    )
    may_go_on = (Attempt.outcome == Outcome.LOST.value) & fn.EXISTS(waits)
    query = Attempt.select(Attempt.job, Attempt.number, Attempt.log_size).where(unsealed, whole, ~may_go_on)
    return reader.rows(query.order_by(Attempt.finished_at).limit(most))


def seal(tx: Tx, job: int, number: int, size: int, digest: str) -> bool:
    """Let the blob stand for the chunks; False if the log grew meanwhile or the attempt lives again."""
    ended = Attempt.outcome.is_null(False) & Attempt.log_digest.is_null() & (Attempt.log_size == size)
    done = tx.run(Attempt.update({Attempt.log_digest: digest}).where(_attempt(job, number), ended))
    if done:
        tx.run(LogChunk.delete().where(LogChunk.job == job, LogChunk.number == number))
    return done == 1


def told(tx: Tx, job: int, number: int) -> int | None:
    """How long the attempt's result said that its log is. A sealed log is as long as it is."""
    size = Case(None, [(Attempt.log_digest.is_null(), Attempt.log_told)], Attempt.log_size)
    row = tx.one(Attempt.select(size).where(_attempt(job, number)))
    return row[0] if row else None
