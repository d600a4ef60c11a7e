"""Jobs: looking at one, and why it waits; canceling one."""

from __future__ import annotations

from typing import Any

import msgspec

from deborgen_shared.messages import Attempt, CancelAnswer, JobDetail, Why, WhyWorker
from deborgen_shared.states import WORKING, State, WorkerState

from .. import ids
from ..leases import expires_at
from ..placement import Needs, lacks, short
from ..storage import attempts, specs, workers
from ..storage.database import Connection
from ..storage.rows import JobRow, StepRow, WorkerRow
from ..storage.transactions import Tx
from . import artifacts, views
from .context import Actor, Context
from .fleet import amounts, machine
from .lookup import find_job, find_run
from .runs import cancel
from .standing import standing

#: What the storage tells of each attempt, in its order.
ATTEMPT_FIELDS = (
    "number worker outcome reason exit_code claimed_at started_at finished_at seconds log_size cpu_seconds peak_memory"
    " image lease_clock"
).split()


def _step(reader: Connection, row: JobRow) -> StepRow:
    return next(step for step in specs.steps(reader, ids.run_of(row.id)) if step.number == row.step)


def get_job(ctx: Context, run: int, index: int) -> JobDetail:
    """A job with its spec, its artifacts and its whole history."""
    now = ctx.clock.wall()

    def look(reader: Connection) -> JobDetail:
        row = find_job(reader, run, index)
        spec = ctx.catalog.spec(reader, row.spec_id)
        fields = views.job_fields(row, find_run(reader, run), _step(reader, row), spec)
        clock = workers.clock(reader)

        history = []
        for row_of_attempt in attempts.history(reader, row.id):
            told: dict[str, Any] = dict(zip(ATTEMPT_FIELDS, row_of_attempt, strict=True))
            for moment in ("claimed_at", "started_at", "finished_at"):
                told[moment] = views.maybe_when(told[moment])
            lease_clock = told.pop("lease_clock")
            expires = None if lease_clock is None else expires_at(now, clock, lease_clock, ctx.settings.lease_seconds)
            history.append(Attempt(**told, lease_expires_at=views.maybe_when(expires)))
        return JobDetail(
            **fields, spec=msgspec.json.decode(spec.raw), artifacts=artifacts.listed(reader, row.id), history=history
        )

    return ctx.store.read(look)


def cancel_job(ctx: Context, actor: Actor, run: int, index: int, reason: str) -> CancelAnswer:
    def find(tx: Tx) -> tuple[int, int]:
        key = find_job(tx, run, index).id
        return key, key

    return cancel(ctx, actor, run, find, reason)


def why(ctx: Context, run: int, index: int) -> Why:
    """Why a job waits, one line a worker, or why it ended as it did."""

    def look(reader: Connection) -> Why:
        row = find_job(reader, run, index)
        clock = workers.clock(reader)
        lines: list[WhyWorker] = []
        if row.state is State.QUEUED:
            needs = ctx.catalog.needs(reader, row.class_id)
            there = [worker for worker in workers.every(reader) if worker.state is not WorkerState.LEFT]
            lines = [_why_worker(worker, needs, clock) for worker in there]
        return Why(job=ids.name(row.id), state=row.state.value, summary=_summary(reader, row, lines), workers=lines)

    return ctx.store.read(look)


def _why_worker(worker: WorkerRow, needs: Needs, clock: float) -> WhyWorker:
    never = lacks(machine(worker), needs)
    state, reason = standing(worker, clock)
    if never:
        return WhyWorker(worker=worker.name, fits=False, reason=never)
    if state not in WORKING:
        words = reason if reason.startswith(state) else f"{state}: {reason}" if reason else state
        return WhyWorker(worker=worker.name, fits=False, reason=words)
    busy = short(amounts(worker.free), needs)
    return WhyWorker(worker=worker.name, fits=not busy, reason=busy or "can take it with its next claim")


def _summary(reader: Connection, row: JobRow, lines: list[WhyWorker]) -> str:
    if row.state is State.RUNNING:
        asked = ", and its cancel was asked for" if row.cancel_requested else ""
        return f"it runs on {row.worker}, attempt {row.last_attempt}{asked}"
    if row.state is State.SUCCEEDED:
        return f"it succeeded on {row.worker} with attempt {row.last_attempt}"
    if row.state.terminal:
        where = f" on {row.worker}" if row.worker else ""
        ended = row.state.value if row.state is State.FAILED else f"was {row.state}"
        return f"it {ended}{where}: {row.reason or 'no reason given'}"
    if not row.ready:
        step = _step(reader, row)
        if step.blockers:
            return f"it waits for the steps it needs: {', '.join(step.needs)}"
        return f"it waits before it is tried again: {row.reason}"
    if not lines:
        return "it waits for a worker: none has joined yet"
    if any(line.fits for line in lines):
        return "it waits for its turn: a worker can take it"
    return "it waits: no worker can take it now"
