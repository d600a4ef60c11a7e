"""How a worker stands: what it says of itself, and what the coordinator concludes."""

from __future__ import annotations

from deborgen_shared.messages import Resources
from deborgen_shared.states import WORKING, Availability, WorkerState

from ...storage.rows import WorkerRow

#: The states whose availability has another name.
NAMED_OTHERWISE = {WorkerState.RESTING: Availability.CLOSED, WorkerState.LEFT: Availability.OFFLINE}


def standing(worker: WorkerRow, clock: float) -> tuple[WorkerState, str]:
    """The one word for how a worker stands, and why."""
    if worker.state is WorkerState.LEFT:
        return WorkerState.LEFT, worker.reason
    if not worker.online:
        return WorkerState.OFFLINE, "not heard of for longer than a lease"
    if worker.rest_clock > clock:
        minutes = (worker.rest_clock - clock) / 60
        return WorkerState.RESTING, f"too many infrastructure failures in a row; rests for {minutes:.0f} more minutes"
    works = worker.state in WORKING
    if worker.drain:
        return WorkerState.DRAINING, ("" if works else worker.reason) or "drained by an admin"
    if works and worker.paused:
        return WorkerState.PAUSED, "paused by an admin"
    return worker.state, worker.reason


def availability(state: WorkerState, capacity: Resources, free: Resources) -> Availability:
    """What people are told: an open worker is free, or busy while no other job at all would fit."""
    if state is WorkerState.OPEN:
        return Availability.BUSY if _is_full(capacity, free) else Availability.FREE
    return NAMED_OTHERWISE.get(state) or Availability(state)


def _is_full(capacity: Resources, free: Resources) -> bool:
    """Whether nothing is left of something that every job needs. What a worker never offered is not missed."""
    if free.cpus <= 0:
        return True
    return (capacity.memory > 0 and free.memory <= 0) or (capacity.disk > 0 and free.disk <= 0)
