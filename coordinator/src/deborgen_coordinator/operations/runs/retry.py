"""Retry a run: a new run of the same immutable jobs, linked to the old one.

Jobs keep their index, so that 43.7 is the retry of 42.7. A loop counts as one job, and begins again with its first
round, or where it stopped. If a job needs a step that is not part of the new run, it gets that step's artifacts from
the old run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import Retry, Run
from deborgen_shared.states import TERMINAL, Role, State

from ... import ids
from ...loops import Place
from ...storage import events, jobs, pins, runs, specs
from ...storage.rows import JobRow, RunRow, StepRow
from ...storage.transactions import Tx
from .. import views
from ..context import COORDINATOR, Actor, Context
from ..lookup import check_may_change, find_run
from ..work import Work
from . import submit
from .retried_loops import begin, next_index, one_per_loop, places

#: The states of the jobs to retry, by the value of `only`.
WANTED: dict[str, frozenset[State]] = {
    State.FAILED: frozenset({State.FAILED}),
    State.CANCELED: frozenset({State.CANCELED}),
    "all": TERMINAL,
}


def retry_run(
    ctx: Context, actor: Actor, run: int, body: Retry, idempotency_key: str | None = None, body_digest: str = ""
) -> tuple[Run, bool]:
    """The new run, and whether this call created it. `failed` includes jobs that were canceled because of a failure."""

    def insert(work: Work) -> tuple[RunRow, bool]:
        old = find_run(work.tx, run)
        check_may_change(actor, old)
        submitter = runs.submitter_id(work.tx, actor.name)
        return submit.create_once(work.tx, submitter, idempotency_key, body_digest, lambda: make(work, old, submitter))

    def make(work: Work, old: RunRow, submitter: int) -> RunRow:
        rows = jobs.select(work.tx, span=ids.span(run))
        chosen = _choose(work.tx, run, one_per_loop(rows) if old.next_index else rows, body.only)
        if not chosen:
            raise Refusal(
                Code.INVALID_TRANSITION,
                f"run {run} has no {'finished' if body.only == 'all' else body.only} jobs to retry",
                "look at the states of its jobs",
            )
        loops = places(work.tx, old, rows, chosen, body.rounds) if old.next_index else []
        return _copy(work, old, chosen, loops, submitter)

    row, created = ctx.work(actor, insert)
    return views.run(row), created


def _choose(tx: Tx, run: int, rows: list[JobRow], only: str) -> list[JobRow]:
    """The jobs to retry, and the unsuccessful jobs that they need: no job starts without its inputs."""
    steps = specs.steps(tx, run)
    chosen = {row.id: row for row in rows if row.state in WANTED[only]}
    if only == State.FAILED:
        later_steps = _reach(steps, chosen.values(), lambda step, other: step.name in other.needs)
        dependents = _canceled_dependents(tx, run)
        chosen |= {row.id: row for row in rows if row.step in later_steps and row.id in dependents}
    needed_steps = _reach(steps, chosen.values(), lambda step, other: other.name in step.needs)
    for row in rows:
        if row.step in needed_steps and row.state is not State.SUCCEEDED and row.id not in chosen:
            if not row.state.terminal:
                raise Refusal(
                    Code.INVALID_TRANSITION,
                    f"job {ids.name(row.id)}, which others need, has not ended",
                    "retry after it has ended, or cancel it first",
                )
            chosen[row.id] = row
    return [chosen[key] for key in sorted(chosen)]


def _canceled_dependents(tx: Tx, run: int) -> set[int]:
    """The jobs that were canceled because a step that they need did not succeed, according to the history.

    Release 0.1 did not record the step. Its history has no other cancels that no person requested.
    """
    found = set()
    for job, actor, data in events.cancels(tx, *ids.span(run)):
        if "step" in (views.loads(data) or {}) or actor == str(COORDINATOR) or actor.startswith(f"{Role.WORKER}:"):
            found.add(job)
    return found


def _reach(steps: list[StepRow], rows: Iterable[JobRow], linked: Callable[[StepRow, StepRow], bool]) -> set[int]:
    """The steps that can be reached from the steps of these jobs, directly or through other steps.

    `linked` says whether one step leads to another.
    """
    todo, reached = {row.step for row in rows}, set[int]()
    while todo:
        number = todo.pop()
        at = next(step for step in steps if step.number == number)
        fresh = {other.number for other in steps if linked(at, other)} - reached
        reached |= fresh
        todo |= fresh
    return reached


def _copy(work: Work, old: RunRow, chosen: list[JobRow], loops: list[Place], submitter: int) -> RunRow:
    tx = work.tx
    counts = Counter(job.step for job in chosen)
    steps = [step for step in specs.steps(tx, old.id) if step.number in counts]
    present = {step.name for step in steps}
    row = runs.insert(
        tx,
        name=old.name,
        submitter=work.actor.name,
        submitter_id=submitter,
        labels=old.labels,
        warnings="[]",
        retry_of=old.id,
        jobs=len(chosen),
        steps=len(steps),
        origin=None,
        next_index=next_index(tx, old, loops),
        artifact_store=work.ctx.blobs.kind.value,
        workspace=old.workspace,
        now=work.now,
    )
    new = row.id
    pins.copy(tx, old.id, new)
    runs.add_labels(tx, new, views.loads(old.labels))
    blockers = {}
    for step in steps:
        left = blockers[step.number] = sum(1 for need in step.needs if need in present)
        count = counts[step.number]
        specs.add_step(tx, replace(step, run=new, jobs=count, unfinished=count, blockers=left))
    rows: list[tuple[Any, ...]] = [
        (
            ids.key(new, ids.index_of(job.id)), job.step, job.spec_id, job.class_id, submitter, job.rank, job.params,
            0 if blockers[job.step] else 1, State.QUEUED.value,
        )
        for job in chosen
    ]  # fmt: skip
    jobs.insert(tx, rows, large=len(rows) >= submit.LARGE)
    begin(tx, row, old, loops)
    submit.announce(work, new, rows[0][0], {"name": old.name, "jobs": len(rows), "retry_of": old.id})
    return row
