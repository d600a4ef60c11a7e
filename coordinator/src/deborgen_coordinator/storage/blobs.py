"""Rows of blobs, and who refers to them. A blob counts once its row is here: the file comes first, the row after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deborgen_shared.states import TERMINAL, State

from .database import Connection
from .transactions import Tx

UNREFERENCED = """
SELECT digest FROM blob WHERE touched_at < ?
    AND NOT EXISTS (SELECT 1 FROM artifact WHERE artifact.digest = blob.digest)
    AND NOT EXISTS (SELECT 1 FROM spec_file WHERE spec_file.digest = blob.digest)
    AND NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.log_digest = blob.digest)
"""


_TERMINAL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))
ARTIFACTS_OF_JOBS = (
    "SELECT artifact.job_id, artifact.path, artifact.digest, artifact.size FROM artifact"
    " JOIN job ON job.id = artifact.job_id"
    f" WHERE artifact.job_id BETWEEN ? AND ? AND job.state IN ({_TERMINAL})"
    " AND artifact.number = (SELECT max(newest.number) FROM artifact AS newest WHERE newest.job_id = artifact.job_id)"
    " ORDER BY artifact.job_id, artifact.path LIMIT ? OFFSET ?"
)
ARTIFACTS_OF_SPAN = f"""
SELECT artifact.job_id, artifact.path, artifact.digest, artifact.size FROM artifact
    JOIN job ON job.id = artifact.job_id AND job.last_attempt = artifact.number
    WHERE artifact.job_id BETWEEN ? AND ? AND job.state = '{State.SUCCEEDED}' ORDER BY artifact.job_id, artifact.path
"""


def touch_blob(tx: Tx, digest: str, size: int, now: float) -> None:
    """A blob is here, and somebody has just asked for it: it stays for a day at least."""
    tx.run(
        "INSERT INTO blob (digest, size, touched_at) VALUES (?, ?, ?)"
        " ON CONFLICT (digest) DO UPDATE SET touched_at = excluded.touched_at",
        (digest, size, now),
    )


def touch_known(tx: Tx, digests: Iterable[str], now: float) -> None:
    tx.many("UPDATE blob SET touched_at = ? WHERE digest = ?", [(now, digest) for digest in digests])


def known_blobs(reader: Tx | Connection, digests: Iterable[str]) -> dict[str, int]:
    """The sizes of those of the blobs that are here. In a transaction that writes, they stay until its end."""
    known: dict[str, int] = {}
    lock = " FOR SHARE" if isinstance(reader, Tx) and reader.for_update else ""
    for digest in digests:
        row = reader.one("SELECT size FROM blob WHERE digest = ?" + lock, (digest,))
        if row is not None:
            known[digest] = row[0]
    return known


def hold(tx: Tx, touched_at: float) -> None:
    """Count every blob as asked for at that moment, if it was not later."""
    tx.run("UPDATE blob SET touched_at = ? WHERE touched_at < ?", (touched_at, touched_at))


def every(reader: Connection) -> list[tuple[str, int]]:
    """All blobs: digest and size."""
    return reader.rows("SELECT digest, size FROM blob ORDER BY digest")


def unreferenced(reader: Connection, before: float, most: int) -> list[str]:
    """Blobs that nothing refers to, and that nobody has asked for since then."""
    return [row[0] for row in reader.rows(UNREFERENCED + " LIMIT ?", (before, most))]


def forget(tx: Tx, digest: str, before: float) -> bool:
    """Remove the row of a blob if still nothing refers to it; whether it was removed.

    The row is locked before it is asked who refers to it: whoever is about to has come first, or finds it gone.
    """
    tx.rows("SELECT 1 FROM blob WHERE digest = ?" + tx.for_update, (digest,))
    if not tx.rows(UNREFERENCED + " AND digest = ?", (before, digest)):
        return False
    return tx.run("DELETE FROM blob WHERE digest = ? AND touched_at < ?", (digest, before)) == 1


def add_artifacts(tx: Tx, job: int, number: int, artifacts: Sequence[tuple[str, str, int]]) -> None:
    tx.many(
        "INSERT INTO artifact (job_id, number, path, digest, size) VALUES (?, ?, ?, ?, ?)",
        [(job, number, *artifact) for artifact in artifacts],
    )


def artifacts(reader: Tx | Connection, job: int, number: int | None = None) -> list[tuple[str, str, int]]:
    """The artifacts of one attempt of a job, or of its newest attempt that left any. Path, digest, size."""
    if number is not None:
        return reader.rows(
            "SELECT path, digest, size FROM artifact WHERE job_id = ? AND number = ? ORDER BY path", (job, number)
        )
    return reader.rows(
        "SELECT path, digest, size FROM artifact WHERE job_id = ?"
        " AND number = (SELECT max(number) FROM artifact WHERE job_id = ?) ORDER BY path",
        (job, job),
    )


def artifacts_of_jobs(
    reader: Connection, first: int, last: int, skip: int, most: int
) -> list[tuple[int, str, str, int]]:
    """The artifacts of the jobs in a span that have ended, each those of its newest attempt that left any, without the
    first `skip`. Job, path, digest, size."""
    return reader.rows(ARTIFACTS_OF_JOBS, (first, last, most, skip))


def artifacts_of_span(reader: Tx | Connection, first: int, last: int) -> list[tuple[int, str, str, int]]:
    """The artifacts of the jobs in a span that succeeded: job, path, digest, size."""
    return reader.rows(ARTIFACTS_OF_SPAN, (first, last))


def referenced_size(reader: Connection) -> int:
    """How many bytes logs and artifacts refer to, each blob counted once."""
    size = reader.value(
        "SELECT COALESCE(sum(size), 0) FROM blob"
        " WHERE EXISTS (SELECT 1 FROM artifact WHERE artifact.digest = blob.digest)"
        " OR EXISTS (SELECT 1 FROM attempt WHERE attempt.log_digest = blob.digest)"
    )
    return int(size)


def prunable_runs(reader: Connection, before: float, most: int) -> list[int]:
    """Finished runs whose logs and artifacts are still here, oldest first."""
    sql = "SELECT id FROM run WHERE finished_at < ? AND pruned_at IS NULL ORDER BY finished_at LIMIT ?"
    return [row[0] for row in reader.rows(sql, (before, most))]


def prune_run(tx: Tx, run: int, first: int, last: int, now: float) -> None:
    """Let go of the logs and artifacts of a finished run. Its history stays."""
    tx.run("DELETE FROM artifact WHERE job_id BETWEEN ? AND ?", (first, last))
    tx.run("DELETE FROM log_chunk WHERE job_id BETWEEN ? AND ?", (first, last))
    # `log_told` goes too: otherwise the log would count as unfinished, wait for more bytes, and take them.
    tx.run(
        "UPDATE attempt SET log_digest = NULL, log_size = 0, log_told = 0 WHERE job_id BETWEEN ? AND ?", (first, last)
    )
    tx.run("UPDATE run SET pruned_at = ? WHERE id = ? AND finished_at IS NOT NULL", (now, run))
