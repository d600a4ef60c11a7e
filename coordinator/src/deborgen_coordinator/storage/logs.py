"""Log bytes: chunks in the database while an attempt runs, so that every process can read them; later one blob."""

from __future__ import annotations

from deborgen_shared.states import Outcome, State

from .database import Connection
from .transactions import Tx

#: Chunks are cut to this size, so that reading a few bytes never loads much.
CHUNK = 256 * 1024


TO_SEAL = f"""
SELECT job_id, number, log_size FROM attempt WHERE outcome IS NOT NULL AND log_size > 0 AND log_digest IS NULL
    AND (log_size >= log_told OR finished_at < ?)
    AND NOT (outcome = '{Outcome.LOST}' AND EXISTS (SELECT 1 FROM job WHERE job.id = attempt.job_id
        AND job.state = '{State.QUEUED}' AND job.last_attempt = attempt.number)) ORDER BY finished_at LIMIT ?
"""


def append(tx: Tx, job: int, number: int, offset: int, data: bytes) -> int:
    """Append bytes that start just where the log ends; the new size. The caller has checked the offset."""
    tx.many(
        "INSERT INTO log_chunk (job_id, number, first, data) VALUES (?, ?, ?, ?)",
        [(job, number, offset + at, data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)],
    )
    size = offset + len(data)
    tx.run("UPDATE attempt SET log_size = ? WHERE job_id = ? AND number = ?", (size, job, number))
    return size


def view(reader: Connection, job: int, number: int | None) -> tuple[int, int, bool, str | None] | None:
    """Of one attempt (the newest, if none is named): number, size, whether no more bytes can come, and the sealed
    blob."""
    wanted = "number = ?" if number is not None else "number = (SELECT max(number) FROM attempt WHERE job_id = ?)"
    row = reader.one(
        "SELECT number, log_size, outcome IS NOT NULL AND (log_told IS NULL OR log_size >= log_told), log_digest"
        f" FROM attempt WHERE job_id = ? AND {wanted}",
        (job, number if number is not None else job),
    )
    return (int(row[0]), int(row[1]), bool(row[2]), row[3]) if row else None


def read(reader: Connection, job: int, number: int, offset: int, limit: int) -> bytes:
    """Bytes from the chunks, at most `limit` of them from `offset` on."""
    rows = reader.rows(
        "SELECT first, data FROM log_chunk WHERE job_id = ? AND number = ? AND first >= ? AND first < ? ORDER BY first",
        (job, number, offset - CHUNK + 1, offset + limit),
    )
    parts = [
        bytes(data)[max(0, offset - first) : offset + limit - first]
        for first, data in rows
        if first + len(data) > offset
    ]
    return b"".join(parts)


def to_seal(reader: Connection, before: float, most: int) -> list[tuple[int, int, int]]:
    """Logs to be sealed: of ended attempts, whole, or so long ended that nothing more can come. Job, number, size.

    A lost attempt whose job nobody has claimed since may be taken up again, and then writes on: it is not sealed.
    """
    return reader.rows(TO_SEAL, (before, most))


def seal(tx: Tx, job: int, number: int, size: int, digest: str) -> bool:
    """Let the blob stand for the chunks; False if the log grew meanwhile or the attempt lives again."""
    done = tx.run(
        "UPDATE attempt SET log_digest = ? WHERE job_id = ? AND number = ? AND log_size = ? AND outcome IS NOT NULL"
        " AND log_digest IS NULL",
        (digest, job, number, size),
    )
    if done:
        tx.run("DELETE FROM log_chunk WHERE job_id = ? AND number = ?", (job, number))
    return done == 1


def told(tx: Tx, job: int, number: int) -> int | None:
    """How long the attempt's result said that its log is. A sealed log is as long as it is."""
    row = tx.one(
        "SELECT CASE WHEN log_digest IS NULL THEN log_told ELSE log_size END FROM attempt"
        " WHERE job_id = ? AND number = ?",
        (job, number),
    )
    return row[0] if row else None
