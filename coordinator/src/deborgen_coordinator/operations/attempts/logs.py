"""Logs: bytes by offset while an attempt runs, the same bytes for ever after."""

from __future__ import annotations

from dataclasses import dataclass

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import LogSize

from ...storage import logs
from ...storage.database import DatabaseConnection
from ...storage.rows import HeldAttempt
from ..context import Actor, Context
from ..lookup import find_job
from ..work import Work
from ..workers.sessions import AttemptId, find_own_attempt, refuse_stale


@dataclass(frozen=True)
class LogView:
    """Which attempt's log, how long it is, whether more bytes can still come, and the blob that holds it if sealed."""

    attempt: int
    size: int
    ended: bool
    blob: str | None


def append(ctx: Context, actor: Actor, attempt: AttemptId, offset: int, data: bytes, session: str) -> LogSize:
    """Take log bytes from `offset` on: what is here already is skipped, a gap is refused.

    They are taken from the newest session of the worker that holds the attempt, and after its end until the log is as
    long as the result said.
    """

    def take(work: Work) -> int:
        held = find_own_attempt(work, attempt, session)
        told = logs.announced_size(work.tx, held.job, held.number)
        if not _takes_more(held, told):
            return -1
        if offset > held.log_size:
            raise Refusal(
                Code.LOG_GAP,
                f"the log has {held.log_size} bytes, and these start at {offset}",
                f"send from byte {held.log_size} on",
                details={"size": held.log_size},
            )
        fresh = _fresh(data, offset, held.log_size)
        if told is not None:
            fresh = fresh[: told - held.log_size]
        if not fresh:
            return held.log_size
        work.wake("logs")
        return logs.append(work.tx, held.job, held.number, held.log_size, fresh)

    size = ctx.work(actor, take)
    if size < 0:
        raise refuse_stale(ctx, actor, attempt, "log")
    return LogSize(size=size)


def _fresh(data: bytes, offset: int, size: int) -> bytes:
    """The bytes that a log of this size does not have yet."""
    return data[size - offset :]


def _takes_more(held: HeldAttempt, told: int | None) -> bool:
    if held.live:
        return held.current
    return told is not None and held.log_size < told


def view(ctx: Context, run: int, index: int, number: int | None) -> LogView:
    """The log of one attempt, the newest if none is named; an empty one where nothing was ever tried."""

    def look(reader: DatabaseConnection) -> LogView:
        row = find_job(reader, run, index)
        found = logs.view(reader, row.id, number)
        if found is None and number is None:
            return LogView(0, 0, row.state.terminal, None)
        if found is None:
            raise Refusal(Code.NOT_FOUND, f"job {run}.{index} has no attempt {number}")
        return LogView(*found)

    return ctx.store.read(look)


def read(ctx: Context, run: int, index: int, number: int, offset: int, limit: int) -> bytes:
    """At most `limit` bytes from `offset` on; none at the end."""

    def look(reader: DatabaseConnection) -> tuple[str | None, bytes]:
        job = find_job(reader, run, index).id
        found = logs.view(reader, job, number)
        if found is None:
            return None, b""
        return found[3], b"" if found[3] else logs.read(reader, job, number, offset, limit)

    blob, data = ctx.store.read(look)
    if blob is None:
        return data
    return b"".join(ctx.blobs.open_range(blob, offset, offset + limit))
