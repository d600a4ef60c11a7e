"""Why a job is queued, or why it ended as it did."""

from __future__ import annotations

import math
from collections.abc import Mapping

from deborgen_shared.jobfile.units import format_duration
from deborgen_shared.messages import Why, WhyWorker
from deborgen_shared.states import WORKING, Outcome, State, WorkerState

from ... import ids
from ...loops import following
from ...placement import Needs, lacks, shortage
from ...storage import attempts, experiences, lease_clock, rounds, workers
from ...storage.database import DatabaseConnection
from ...storage.rows import JobRow, WorkerRow
from .. import views
from ..attempts import logs
from ..attempts.failures import subjects_of_job
from ..context import Context
from ..lookup import find_job, find_step
from ..secrets import missing_secrets
from ..worker_fit import amounts, machine
from ..workers.state import state_and_reason


def why(ctx: Context, run: int, index: int) -> Why:
    """Why a job is queued, with one line per worker, or why it ended as it did."""

    def look(reader: DatabaseConnection) -> tuple[int, Why]:
        row = find_job(reader, run, index)
        clock = lease_clock.read(reader)
        lines: list[WhyWorker] = []
        if row.state is State.QUEUED and row.ready:
            needs = ctx.spec_cache.needs(reader, row.class_id)
            members = [worker for worker in workers.list_all(reader) if worker.state is not WorkerState.LEFT]
            lines = [_why_worker(worker, needs, clock) for worker in members]
            _add_troubles(ctx, reader, row, dict(zip(members, lines, strict=True)))
        stalled = row.last_attempt if _has_stalled(reader, row) else 0
        return stalled, Why(
            job=ids.name(row.id), state=row.state.value, summary=_summary(ctx, reader, row, lines, clock), workers=lines
        )

    stalled, answer = ctx.store.read(look)
    if stalled:
        answer.last_lines = logs.last_lines(ctx, run, index, stalled)
    return answer


def _has_stalled(reader: DatabaseConnection, row: JobRow) -> bool:
    """Whether the last attempt has ended because its program wrote nothing for too long."""
    ended = row.state in (State.FAILED, State.QUEUED) and row.last_attempt > 0
    return ended and attempts.recent_outcomes(reader, row.id, 1)[0][1] == Outcome.STALLED


def _why_worker(worker: WorkerRow, needs: Needs, clock: float) -> WhyWorker:
    never = lacks(machine(worker), needs)
    state, reason = state_and_reason(worker, clock)
    if never:
        return WhyWorker(worker=worker.name, fits=False, reason=never)
    if state not in WORKING:
        words = reason if reason.startswith(state) else f"{state}: {reason}" if reason else state
        return WhyWorker(worker=worker.name, fits=False, reason=words)
    busy = shortage(amounts(worker.free), needs)
    return WhyWorker(worker=worker.name, fits=not busy, reason=busy or "can run it with its next claim", able=True)


def _add_troubles(ctx: Context, reader: DatabaseConnection, row: JobRow, lines: Mapping[WorkerRow, WhyWorker]) -> None:
    """Say which workers could not get the job's image, could not prepare its workspace, or ended its last attempt."""
    needs = ctx.spec_cache.needs(reader, row.class_id)
    subjects = subjects_of_job(row.spec_id, ctx.spec_cache.spec(reader, row.spec_id).job, row.params)
    troubles = {each.worker_id: each for each in experiences.troubles(reader) if each.subject in subjects}
    for worker, line in lines.items():
        reason = troubles[worker.id].reason if worker.id in troubles else row.reason if row.avoid == worker.id else ""
        if reason and line.fits:
            line.fits = not ctx.worker_fit.another_could(needs, worker.name, subjects)
            line.reason = f"{reason}; {'it is tried again' if line.fits else 'other machines come first'}"


def _warned(row: JobRow) -> str:
    """The job's warnings as further sentences."""
    return "".join(f" Warning: {warning}." for warning in views.loads(row.warnings) or [])


def _pause(seconds: float) -> str:
    """`43 s`, or in minutes and hours if it is long."""
    whole = max(0, math.ceil(seconds))
    return f"{whole} s" if whole < 120 else format_duration(-(-whole // 60) * 60)


def _ended_in_loop(reader: DatabaseConnection, row: JobRow) -> str:
    """How a job of a loop has ended, and which job follows it."""
    assert row.place is not None
    where = f"on {row.worker}, attempt {row.last_attempt}"
    if row.verified:
        return f"Verified {where}: the loop is complete.{_warned(row)}"
    due = following(row.place, row.verified) if row.state is State.SUCCEEDED else None
    job = rounds.job_at(reader, due) if due is not None else None
    if due is None or job is None:
        return _ended(row)
    if row.verified is False:
        return (
            f"Not verified {where}: exit code {row.exit_code}. Round {due.round} is job {ids.name(job)}.{_warned(row)}"
        )
    return f"Succeeded {where}. Its check is job {ids.name(job)}.{_warned(row)}"


def _ended(row: JobRow) -> str:
    if row.state is State.SUCCEEDED:
        return f"Succeeded on {row.worker}, attempt {row.last_attempt}.{_warned(row)}"
    where = f" on {row.worker}" if row.worker else ""
    return f"{row.state.value.capitalize()}{where}: {row.reason or 'no reason given'}.{_warned(row)}"


def _summary(ctx: Context, reader: DatabaseConnection, row: JobRow, lines: list[WhyWorker], clock: float) -> str:
    if row.state is State.RUNNING:
        requested = " A cancel was requested." if row.cancel_requested else ""
        if not attempts.program_starts(reader, [row.id]):
            return f"Assigned to {row.worker}, attempt {row.last_attempt}: its program has not begun.{requested}"
        return f"Running on {row.worker}, attempt {row.last_attempt}.{requested}"
    if row.state.terminal:
        return _ended_in_loop(reader, row) if row.place is not None else _ended(row)
    if not row.ready:
        step = find_step(reader, row)
        if step.blockers:
            return f"Queued: it waits for the steps that it needs: {', '.join(step.needs)}."
        ended = f"attempt {row.last_attempt} on {row.worker} ended: {row.reason or 'no reason given'}"
        return f"Queued: {ended}; next try in {_pause((row.wait_clock or 0) - clock)}."
    gone = missing_secrets(ctx, reader, row.submitter_id, ctx.spec_cache.needs(reader, row.class_id).secrets)
    if gone:
        return f"Queued: it waits for the secret {', '.join(gone)}, which is missing: set it again."
    if not lines:
        return "Queued: no worker has joined yet."
    if any(line.fits for line in lines):
        return "Queued: a worker can run it with its next claim."
    return "Queued: no worker can run it right now."
