"""Logs: bytes that workers append by offset while an attempt runs, and that never change afterwards."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from deborgen_shared.calls import JobId
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import LogSize

from ... import ids
from ...storage import blobs as blob_rows
from ...storage import logs
from ...storage.blobs import Stored
from ...storage.database import DatabaseConnection
from ...storage.rows import HeldAttempt
from .. import blobs
from ..context import Actor, Context
from ..lookup import Noun, UnknownName, find_job
from ..work import Work
from ..workers.sessions import AttemptId, find_own_attempt, refuse_stale

#: The last lines of a log are at most this many, each with at most this many characters, from this many bytes.
LAST_LINES, LINE, LAST_BYTES = 10, 300, 4096


@dataclass(frozen=True)
class LogView:
    """The attempt's number, the log's size, whether the log is complete, and its blob once it is sealed."""

    attempt: int
    size: int
    ended: bool
    blob: str | None


def append(ctx: Context, actor: Actor, attempt: AttemptId, offset: int, data: bytes, session: str) -> LogSize:
    """Append log bytes that start at `offset`: bytes that the log already has are skipped, and a gap is refused.

    Only the newest session of the attempt's worker may append. After the attempt's end, bytes are accepted until the
    log has the size that the result announced.
    """

    def append_new(work: Work) -> int | None:
        """The size of the log afterwards; None if the attempt accepts no more bytes."""
        held = find_own_attempt(work, attempt, session)
        announced = None if held.live else logs.announced_size(work.tx, held.job, held.number)
        if not _accepts_more(held, announced):
            return None
        if offset > held.log_size:
            raise Refusal(
                Code.LOG_GAP,
                f"the log has {held.log_size} bytes, but these start at byte {offset}",
                f"send the bytes from {held.log_size}",
                details={"size": held.log_size},
            )
        fresh = _fresh(data, offset, held.log_size)
        if announced is not None:
            fresh = fresh[: announced - held.log_size]
        if not fresh:
            return held.log_size
        work.wake("logs")
        return logs.append(work.tx, held.job, held.number, held.log_size, fresh)

    size = ctx.work(actor, append_new)
    if size is None:
        raise refuse_stale(ctx, actor, attempt, "log")
    return LogSize(size=size)


def _fresh(data: bytes, offset: int, size: int) -> bytes:
    """The bytes that a log of this size does not have yet."""
    return data[size - offset :]


def _accepts_more(held: HeldAttempt, announced: int | None) -> bool:
    if held.live:
        return held.current
    return announced is not None and held.log_size < announced


def view(ctx: Context, run: int, index: int, number: int | None) -> LogView:
    """The log of one attempt (the newest, if no number is given); empty if the job has no attempt yet."""

    def look(reader: DatabaseConnection) -> LogView:
        row = find_job(reader, run, index)
        found = logs.view(reader, row.id, number)
        if found is None and number is None:
            return LogView(0, 0, row.state.terminal, None)
        if found is None:
            raise UnknownName(Noun.ATTEMPT, f"job {run}.{index} has no attempt {number}")
        return LogView(*found)

    return ctx.store.read(look)


def views(ctx: Context, jobs: Collection[JobId]) -> dict[tuple[JobId, int], LogView]:
    """The logs of all attempts of these jobs, by job and number."""
    keys = {ids.key(*job): job for job in jobs}
    found = ctx.store.read(lambda reader: logs.views(reader, list(keys)))
    return {(keys[job], view[0]): LogView(*view) for job, view in found}


def read(ctx: Context, run: int, index: int, number: int, offset: int, limit: int) -> bytes:
    """At most `limit` bytes, starting at `offset`; empty at the end of the log."""

    def look(reader: DatabaseConnection) -> tuple[str, Stored | None, bytes]:
        job = find_job(reader, run, index).id
        found = logs.view(reader, job, number)
        if found is None:
            return "", None, b""
        blob = LogView(*found).blob
        if blob:
            return blob, blob_rows.find(reader, blob), b""
        return "", None, logs.read(reader, job, number, offset, limit)

    blob, stored, data = ctx.store.read(look)
    if stored is None:
        return data
    return b"".join(blobs.open_range(ctx, blob, offset, min(offset + limit, stored.size), stored.upload))


def last_lines(ctx: Context, run: int, index: int, number: int) -> list[str]:
    """The last few lines that an attempt wrote."""
    size = view(ctx, run, index, number).size
    data = read(ctx, run, index, number, max(0, size - LAST_BYTES), LAST_BYTES)
    lines = [line for line in data.decode(errors="replace").replace("\0", "").splitlines() if line.strip()]
    return [line[:LINE] for line in lines[-LAST_LINES:]]
