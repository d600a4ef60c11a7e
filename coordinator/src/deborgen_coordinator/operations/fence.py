"""The fence around an attempt: only the worker and the session that hold its lease add to what it wrote."""

from __future__ import annotations

from deborgen_shared.errors import Code, Refusal

from .. import ids
from ..storage import attempts
from ..storage.rows import Held
from ..storage.transactions import Tx
from .context import Actor, Context
from .history import record
from .lookup import MOST_RUNS
from .sessions import check_identity, check_session


def find_own_attempt(tx: Tx, actor: Actor, run: int, index: int, number: int, session: str) -> Held:
    """The attempt, if it is this worker's and the session is the worker's newest.

    A lease is always the newest session's: a registration takes it over or ends it.
    """
    held = attempts.get(tx, ids.key(run, index), number) if run < MOST_RUNS and index <= ids.MOST_JOBS else None
    if held is None:
        raise Refusal(Code.NOT_FOUND, f"there is no attempt {run}.{index}/{number}")
    check_identity(actor, held.worker)
    check_session(tx, held.worker, session)
    return held


def refuse_stale(ctx: Context, actor: Actor, run: int, index: int, number: int, what: str) -> Refusal:
    """The refusal of something that came for an attempt that is over. The history tells of the first one."""
    ctx.store.write(lambda tx: _note_stale(ctx, tx, actor, ids.key(run, index), number, what))
    return Refusal(
        Code.STALE_ATTEMPT, f"attempt {run}.{index}/{number} is over", "stop it, and send nothing more of it"
    )


def _note_stale(ctx: Context, tx: Tx, actor: Actor, job: int, number: int, what: str) -> None:
    held = attempts.get(tx, job, number)
    if held is not None and not held.stale:
        attempts.mark_stale(tx, job, number)
        now = ctx.clock.wall()
        record(tx, now, "result.stale", actor, job=job, attempt=number, worker=held.worker, data={"what": what})
