"""A worker's state: what the worker reports, and what the coordinator concludes."""

from __future__ import annotations

from deborgen_shared.messages import Resources
from deborgen_shared.states import WORKING, Availability, WorkerState

from ...storage.rows import WorkerRow

#: The states whose availability has a different name.
NAMED_OTHERWISE = {WorkerState.RESTING: Availability.CLOSED, WorkerState.LEFT: Availability.OFFLINE}


def standing(worker: WorkerRow, clock: float) -> tuple[WorkerState, str]:
    """The worker's state in one word, and the reason."""
    if worker.state is WorkerState.LEFT:
        return WorkerState.LEFT, worker.reason
    if not worker.online:
        return WorkerState.OFFLINE, "no heartbeat for longer than a lease"
    if worker.rest_clock > clock:
        minutes = (worker.rest_clock - clock) / 60
        return (
            WorkerState.RESTING,
            f"too many infrastructure failures in a row; rests for {minutes:.0f} more minutes",
        )
    works = worker.state in WORKING
    if worker.drain:
        return WorkerState.DRAINING, ("" if works else worker.reason) or "drained by an admin"
    if works and worker.paused:
        return WorkerState.PAUSED, "paused by an admin"
    return worker.state, worker.reason


def availability(state: WorkerState, capacity: Resources, free: Resources) -> Availability:
    """The availability that people see: an open worker is free, or busy if no further job at all would fit."""
    if state is WorkerState.OPEN:
        return Availability.BUSY if _is_full(capacity, free) else Availability.FREE
    return NAMED_OTHERWISE.get(state) or Availability(state)


def _is_full(capacity: Resources, free: Resources) -> bool:
    """Whether a resource that every job needs is used up. A resource that the worker does not offer does not count."""
    if free.cpus <= 0:
        return True
    return (capacity.memory > 0 and free.memory <= 0) or (capacity.disk > 0 and free.disk <= 0)
