"""Show workers to people."""

from __future__ import annotations

import msgspec

from deborgen_shared.messages import Metrics, Resources, Worker, Workers, WorkerTrouble
from deborgen_shared.states import OLD_STATES

from ... import ids
from ...blame import image_of
from ...storage import attempts, experiences, lease_clock, workers
from ...storage.database import DatabaseConnection
from ...storage.experiences import TroubleRow
from ...storage.rows import WorkerRow
from .. import views
from ..context import Context
from ..lookup import find_worker
from .state import availability, state_and_reason

#: Show at most this many troubles of a worker.
MOST_TROUBLES = 20


def _show(reader: DatabaseConnection, worker: WorkerRow, clock: float, troubles: list[TroubleRow]) -> Worker:
    state, reason = state_and_reason(worker, clock)
    capacity = msgspec.json.decode(worker.capacity, type=Resources)
    free = msgspec.json.decode(worker.free, type=Resources)
    held = attempts.names_held_by(reader, worker.id)
    begun = attempts.program_starts(reader, [job for job, _ in held])
    return Worker(
        name=worker.name,
        state=OLD_STATES.get(state, state),
        reason=reason,
        hostname=worker.hostname,
        version=worker.version,
        labels=views.loads(worker.labels),
        capacity=capacity,
        free=free,
        running=[ids.attempt_name(*each) for each in held],
        last_seen_at=views.when(worker.seen_at),
        paused=worker.paused,
        drain=worker.drain,
        availability=availability(state, capacity, free),
        until=views.maybe_when(worker.until_at) if state is worker.state else None,
        metrics=msgspec.json.decode(worker.metrics, type=Metrics) if worker.metrics else None,
        assigned=[ids.attempt_name(*each) for each in held if each[0] not in begun],
        troubles=[
            WorkerTrouble(image=image_of(each.subject), reason=each.reason, at=views.when(each.at))
            for each in troubles
            if each.worker_id == worker.id
        ][:MOST_TROUBLES],
    )


def list_workers(ctx: Context) -> Workers:
    def look(reader: DatabaseConnection) -> list[Worker]:
        clock, troubles = lease_clock.read(reader), experiences.troubles(reader)
        return [_show(reader, worker, clock, troubles) for worker in workers.list_all(reader)]

    return Workers(items=ctx.store.read(look), next=None)


def get_worker(ctx: Context, name: str) -> Worker:
    def look(reader: DatabaseConnection) -> Worker:
        return _show(reader, find_worker(reader, name), lease_clock.read(reader), experiences.troubles(reader))

    return ctx.store.read(look)
