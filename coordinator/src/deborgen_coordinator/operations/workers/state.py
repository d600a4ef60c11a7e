"""A worker's state, from its own reports and from what the coordinator knows about it."""

from __future__ import annotations

from deborgen_shared.messages import Resources
from deborgen_shared.states import WORKING, Availability, WorkerState

from ...blame import LONGEST_PAUSE, on_probation
from ...storage.rows import WorkerRow

#: The states whose availability has a different name.
NAMED_OTHERWISE = {WorkerState.RESTING: Availability.CLOSED, WorkerState.LEFT: Availability.OFFLINE}


def state_and_reason(worker: WorkerRow, clock: float) -> tuple[WorkerState, str]:
    """The worker's state, and the reason for it."""
    if worker.state is WorkerState.LEFT:
        return WorkerState.LEFT, worker.reason
    if not worker.online:
        return WorkerState.OFFLINE, "no heartbeat for longer than a lease"
    failures = f"{worker.failures} infrastructure failures in a row"
    if worker.rest_clock > clock:
        seconds = worker.rest_clock - clock
        if seconds > LONGEST_PAUSE:
            return WorkerState.RESTING, f"{failures}, by its own fault; rests for {seconds / 60:.0f} more minutes"
        return WorkerState.RESTING, f"{failures}; the next job in {seconds:.0f} s, one at a time"
    works = worker.state in WORKING
    if worker.drain:
        return WorkerState.DRAINING, ("" if works else worker.reason) or "drained by an admin"
    if works and worker.paused:
        return WorkerState.PAUSED, "paused by an admin"
    if works and on_probation(worker.failures):
        return WorkerState.LIMITED, f"{failures}; one job at a time until a program runs to its end"
    return worker.state, worker.reason


def availability(state: WorkerState, capacity: Resources, free: Resources) -> Availability:
    """The availability that people see. An open worker is busy if no further job could fit, and otherwise free."""
    if state is WorkerState.OPEN:
        return Availability.BUSY if _is_full(capacity, free) else Availability.FREE
    return NAMED_OTHERWISE.get(state) or Availability(state)


def _is_full(capacity: Resources, free: Resources) -> bool:
    """Whether a resource that every job needs is used up. Resources that the worker does not report do not count."""
    if free.cpus <= 0:
        return True
    return (capacity.memory > 0 and free.memory <= 0) or (capacity.disk > 0 and free.disk <= 0)
