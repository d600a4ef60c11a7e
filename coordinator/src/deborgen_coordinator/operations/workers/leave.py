"""Leaving: a worker says goodbye, and gives back what it holds."""

from __future__ import annotations

from deborgen_shared.states import WorkerState

from ...storage import workers
from ..attempts.outcomes import release_all
from ..context import Actor, Context
from ..lookup import find_worker
from ..work import About, Work
from .sessions import check_identity, superseded


def leave(ctx: Context, actor: Actor, name: str, session: str | None = None) -> None:
    """Let the worker go: what it held is released, and nobody loses an attempt.

    With a session, only the newest one can say it: an older twin releases nothing of a newer one's.
    """
    check_identity(actor, name)

    def say_goodbye(work: Work) -> None:
        worker = find_worker(work.tx, name, lock=True)
        if worker.state is WorkerState.LEFT:
            return
        if session is not None and session != worker.session:
            raise superseded(name)
        release_all(work, worker, f"worker {name} left")
        workers.leave(work.tx, worker.id, "left the pool")
        work.record("worker.left", About(worker=name))

    ctx.work(actor, say_goodbye)
