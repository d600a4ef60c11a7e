"""Steps: how the end of a step's jobs affects the steps that need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deborgen_shared.states import State

from .. import ids
from ..storage import jobs, specs
from ..storage.rows import StepRow
from .rounds import DueJob, add_jobs

if TYPE_CHECKING:
    from .work import Work


def settle(work: Work, run: int, number: int, states: Mapping[str, int], due: Sequence[DueJob]) -> None:
    """Count jobs of a step that have ended; `states` has how many ended in each state, and `due` the jobs with which
    loops of the step go on. When all jobs of the step have succeeded, and no more are due, the steps that need it may
    start. When one has not succeeded, those steps are canceled."""
    count = sum(states.values())
    if specs.finish_jobs_of_only_step(work.tx, run, count):
        if due:
            add_jobs(work, run, number, due)
        return
    steps = specs.steps(work.tx, run, lock=True)
    step = next(step for step in steps if step.number == number)
    left = specs.finish_jobs_of_step(work.tx, run, number, count)
    if due:
        add_jobs(work, run, number, due)
        left += len(due)
    dependents = [other for other in steps if step.name in other.needs]
    has_succeeded = bool(dependents) and left == 0 and jobs.all_succeeded(work.tx, *_span(step))
    for other in dependents:
        if states.get(State.SUCCEEDED) != count:
            reason = f"step '{step.name}', which it needs, did not succeed"
            work.cancel_queued(*_span(other), reason, because_of=step.name)
            continue
        is_free = has_succeeded and specs.lift_blocker(work.tx, run, other.number) == 0
        if is_free and jobs.unblock(work.tx, *_span(other)):
            work.wake("jobs")


def _span(step: StepRow) -> tuple[int, int]:
    """The ids of the step's first and last job."""
    return ids.key(step.run, step.first_index), ids.key(step.run, step.last_index)
