"""Steps: how the end of a step's jobs affects the steps that need it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from deborgen_shared.states import State

from .. import ids
from ..storage import jobs, specs

if TYPE_CHECKING:
    from .work import Work


def settle(work: Work, run: int, number: int, states: Counter[str]) -> None:
    """Count ended jobs of a step, given by state. When all its jobs have succeeded, the steps that need it may start;
    if one has not succeeded, they are canceled."""
    count = states.total()
    if specs.finish_jobs_of_only_step(work.tx, run, count):
        return
    steps = specs.steps(work.tx, run, lock=True)
    step = next(step for step in steps if step.number == number)
    left = specs.finish_jobs_of_step(work.tx, run, number, count)
    for other in steps:
        if step.name not in other.needs:
            continue
        first, last = ids.key(run, other.first_index), ids.key(run, other.last_index)
        if states[State.SUCCEEDED] != count:
            reason = f"step '{step.name}', which it needs, did not succeed"
            work.cancel_queued(first, last, reason, because_of=step.name)
        elif left == 0 and specs.lift_blocker(work.tx, run, other.number) == 0 and jobs.unblock(work.tx, first, last):
            work.wake("jobs")
