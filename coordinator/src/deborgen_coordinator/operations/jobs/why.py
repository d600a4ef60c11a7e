"""Why a job waits, or why it ended as it did."""

from __future__ import annotations

from deborgen_shared.messages import Why, WhyWorker
from deborgen_shared.states import WORKING, State, WorkerState

from ... import ids
from ...placement import Needs, lacks, short
from ...storage import lease_clock, workers
from ...storage.database import DatabaseConnection
from ...storage.rows import JobRow, WorkerRow
from ..context import Context
from ..fleet import amounts, machine
from ..lookup import find_job, find_step
from ..workers.standing import standing


def why(ctx: Context, run: int, index: int) -> Why:
    """Why a job waits, one line per worker, or why it ended as it did."""

    def look(reader: DatabaseConnection) -> Why:
        row = find_job(reader, run, index)
        clock = lease_clock.read(reader)
        lines: list[WhyWorker] = []
        if row.state is State.QUEUED:
            needs = ctx.catalog.needs(reader, row.class_id)
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
    return WhyWorker(worker=worker.name, fits=not busy, reason=busy or "can take it with its next claim")


def _summary(reader: DatabaseConnection, row: JobRow, lines: list[WhyWorker]) -> str:
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
        step = find_step(reader, row)
        if step.blockers:
            return f"it waits for the steps it needs: {', '.join(step.needs)}"
        return f"it waits before it is tried again: {row.reason}"
    if not lines:
        return "it waits for a worker: none has joined yet"
    if any(line.fits for line in lines):
        return "it waits for its turn: a worker can take it"
    return "it waits: no worker can take it now"
