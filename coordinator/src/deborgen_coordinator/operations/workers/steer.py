"""Steer a worker: an admin pauses, drains or resumes it."""

from __future__ import annotations

import msgspec

from deborgen_shared.messages import SteerWorker, Worker

from ...storage import workers
from ..context import Actor, Context
from ..lookup import find_worker
from ..work import About, Work
from .look import get_worker


def steer(ctx: Context, actor: Actor, name: str, body: SteerWorker) -> Worker:
    """Pause, drain or resume a worker. It receives the order with its next heartbeat."""

    def order(work: Work) -> None:
        worker = find_worker(work.tx, name, lock=True)
        paused = worker.paused if body.paused is msgspec.UNSET else bool(body.paused)
        drain = worker.drain if body.drain is msgspec.UNSET else bool(body.drain)
        workers.steer(work.tx, worker.id, paused=paused, drain=drain)
        about = About(worker=name)
        if (paused or drain) and not (worker.paused or worker.drain):
            work.record("worker.paused", about, data={"paused": paused, "drain": drain})
        elif not (paused or drain) and (worker.paused or worker.drain):
            work.record("worker.resumed", about)
            work.wake("jobs")

    ctx.work(actor, order)
    return get_worker(ctx, name)
