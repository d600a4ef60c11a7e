"""Why a job is queued, or why it ended as it did."""

from __future__ import annotations

from deborgen_shared.messages import Why, WhyWorker
from deborgen_shared.states import WORKING, State, WorkerState

from ... import ids
from ...placement import Needs, lacks, short
from ...storage import lease_clock, workers
from ...storage.database import DatabaseConnection
from ...storage.rows import JobRow, WorkerRow
from ..context import Context
from ..lookup import find_job, find_step
from ..worker_fit import amounts, machine
from ..workers.standing import standing


def why(ctx: Context, run: int, index: int) -> Why:
    """Why a job is queued, with one line per worker, or why it ended as it did."""

    def look(reader: DatabaseConnection) -> Why:
        row = find_job(reader, run, index)
        clock = lease_clock.read(reader)
        lines: list[WhyWorker] = []
        if row.state is State.QUEUED:
            needs = ctx.spec_cache.needs(reader, row.class_id)
            there = [worker for worker in workers.list_all(reader) if worker.state is not WorkerState.LEFT]
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
    return WhyWorker(worker=worker.name, fits=not busy, reason=busy or "can run it with its next claim")


def _summary(reader: DatabaseConnection, row: JobRow, lines: list[WhyWorker]) -> str:
    if row.state is State.RUNNING:
        requested = " A cancel was requested." if row.cancel_requested else ""
        return f"Running on {row.worker}, attempt {row.last_attempt}.{requested}"
    if row.state is State.SUCCEEDED:
        return f"Succeeded on {row.worker}, attempt {row.last_attempt}."
    if row.state.terminal:
        where = f" on {row.worker}" if row.worker else ""
        return f"{row.state.value.capitalize()}{where}: {row.reason or 'no reason given'}."
    if not row.ready:
        step = find_step(reader, row)
        if step.blockers:
            return f"Queued: it waits for the steps that it needs: {', '.join(step.needs)}."
        return f"Queued: it pauses before its next attempt: {row.reason}."
    if not lines:
        return "Queued: no worker has joined yet."
    if any(line.fits for line in lines):
        return "Queued: a worker can run it with its next claim."
    return "Queued: no worker can run it right now."
