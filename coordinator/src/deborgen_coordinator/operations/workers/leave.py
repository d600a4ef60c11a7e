"""Leave the pool: a worker gives back all attempts that it holds."""

from __future__ import annotations

from deborgen_shared.states import WorkerState

from ...storage import workers
from ..attempts.outcomes import release_all
from ..context import Actor, Context
from ..lookup import find_worker
from ..work import About, Work
from .sessions import check_identity, superseded


def leave(ctx: Context, actor: Actor, name: str, session: str | None = None) -> None:
    """Remove the worker from the pool. Its attempts are released, so no job loses an attempt.

    If a session is given, it must be the worker's newest: an older process of the worker must not release attempts.
    """
    check_identity(actor, name)

    def release_and_leave(work: Work) -> None:
        worker = find_worker(work.tx, name, lock=True)
        if worker.state is WorkerState.LEFT:
            return
        if session is not None and session != worker.session:
            raise superseded(name)
        release_all(work, worker, f"worker {name} left")
        workers.leave(work.tx, worker.id, "left the pool")
        work.record("worker.left", About(worker=name))

    ctx.work(actor, release_and_leave)
