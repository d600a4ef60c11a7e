"""Workers as people see them."""

from __future__ import annotations

import msgspec

from deborgen_shared.messages import Metrics, Resources, Worker, Workers
from deborgen_shared.states import FIRST_WORDS

from ... import ids
from ...storage import attempts, lease_clock, workers
from ...storage.database import DatabaseConnection
from ...storage.rows import WorkerRow
from .. import views
from ..context import Context
from ..lookup import find_worker
from .standing import availability, standing


def _show(reader: DatabaseConnection, worker: WorkerRow, clock: float) -> Worker:
    state, reason = standing(worker, clock)
    capacity = msgspec.json.decode(worker.capacity, type=Resources)
    free = msgspec.json.decode(worker.free, type=Resources)
    return Worker(
        name=worker.name,
        state=FIRST_WORDS.get(state, state),
        reason=reason,
        hostname=worker.hostname,
        version=worker.version,
        labels=views.loads(worker.labels),
        capacity=capacity,
        free=free,
        running=[ids.attempt_name(*held) for held in attempts.names_held_by(reader, worker.id)],
        last_seen_at=views.when(worker.seen_at),
        paused=worker.paused,
        drain=worker.drain,
        availability=availability(state, capacity, free),
        until=views.maybe_when(worker.until_at) if state is worker.state else None,
        metrics=msgspec.json.decode(worker.metrics, type=Metrics) if worker.metrics else None,
    )


def list_workers(ctx: Context) -> Workers:
    def look(reader: DatabaseConnection) -> list[Worker]:
        clock = lease_clock.read(reader)
        return [_show(reader, worker, clock) for worker in workers.list_all(reader)]

    return Workers(items=ctx.store.read(look), next=None)


def get_worker(ctx: Context, name: str) -> Worker:
    return ctx.store.read(lambda reader: _show(reader, find_worker(reader, name), lease_clock.read(reader)))
