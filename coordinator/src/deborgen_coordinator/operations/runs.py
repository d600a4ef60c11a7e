"""Runs: looking at them, canceling and retrying them. Submitting has a room of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from deborgen_shared import contract
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import CancelAnswer, Jobs, ResultRow, Run, Runs
from deborgen_shared.states import State

from .. import ids
from ..storage import jobs, runs, specs
from ..storage.database import Connection
from ..storage.rows import JobRow, RunRow, StepRow
from ..storage.transactions import Tx
from . import views
from .context import Actor, Context
from .history import record
from .lookup import check_may_change, find_run, parse_cursor
from .transitions import Changes, cancel_queued, settle, write

RESULTS_PAGE = 2000


def get_run(ctx: Context, run: int) -> Run:
    return views.run(ctx.store.read(lambda reader: find_run(reader, run)))


def last_run(ctx: Context, actor: Actor) -> Run:
    """The newest run that the person who asks has submitted."""
    rows = ctx.store.read(lambda reader: runs.select(reader, submitter=actor.name, limit=1))
    if not rows:
        raise Refusal(
            Code.NOT_FOUND, f"{actor.name} has submitted no run yet", f"POST {contract.SUBMIT.path} submits one"
        )
    return views.run(rows[0])


def list_runs(
    ctx: Context, *, state: str | None, submitter: str | None, label: str | None, cursor: str | None, limit: int
) -> Runs:
    """Runs, newest first. A label is `name=value`, or a name alone for any value."""
    name, equals, value = (label or "").partition("=")
    rows = ctx.store.read(
        lambda reader: runs.select(
            reader,
            state=state,
            submitter=submitter,
            label=(name, value if equals else None) if label is not None else None,
            cursor=parse_cursor(cursor),
            limit=limit + 1,
        )
    )
    more = str(rows[limit - 1].id) if len(rows) > limit else None
    return Runs(items=[views.run(row) for row in rows[:limit]], next=more)


def list_jobs(
    ctx: Context, *, run: int | None, state: str | None, worker: str | None, cursor: str | None, limit: int
) -> Jobs:
    """Jobs of a run in their order; without a run, newest first. The cursor is the key of the last one seen."""

    def look(reader: Connection) -> Jobs:
        owners = {run: find_run(reader, run)} if run is not None else {}
        rows = jobs.select(
            reader,
            span=ids.span(run) if run is not None else None,
            state=state,
            worker=worker,
            cursor=parse_cursor(cursor),
            limit=limit + 1,
            newest_first=run is None,
        )
        more = str(rows[limit - 1].id) if len(rows) > limit else None
        return Jobs(items=show_jobs(ctx, reader, rows[:limit], owners), next=more)

    return ctx.store.read(look)


def show_jobs(ctx: Context, reader: Connection, rows: list[JobRow], owners: dict[int, RunRow]) -> list[Any]:
    """The jobs as they are shown. `owners` are the runs that were looked up already; the others are looked up here."""
    steps: dict[tuple[int, int], StepRow] = {}
    shown = []
    for row in rows:
        run = ids.run_of(row.id)
        if run not in owners:
            owners[run] = find_run(reader, run)
        if (run, row.step) not in steps:
            steps.update({(run, step.number): step for step in specs.steps(reader, run)})
        shown.append(views.job(row, owners[run], steps[run, row.step], ctx.catalog.spec(reader, row.spec_id)))
    return shown


def results(ctx: Context, run: int) -> Iterator[ResultRow]:
    """One row a job, read a page at a time, so that a slow reader holds nothing up."""

    def look(reader: Connection) -> dict[int, str | None]:
        find_run(reader, run)
        return {step.number: step.name for step in specs.steps(reader, run)}

    return _result_rows(ctx, run, ctx.store.read(look))


def _result_rows(ctx: Context, run: int, names: dict[int, str | None]) -> Iterator[ResultRow]:
    first, last = ids.span(run)
    while True:
        page = ctx.store.read(partial(jobs.results, first=first, last=last, limit=RESULTS_PAGE))
        for job, step, params, result, state, seconds, worker in page:
            yield ResultRow(
                job=ids.name(job),
                step=names[step],
                params=views.loads(params),
                result=views.loads(result),
                state=state,
                seconds=seconds,
                worker=worker,
            )
        if len(page) < RESULTS_PAGE:
            return
        first = page[-1][0] + 1


def cancel_run(ctx: Context, actor: Actor, run: int, reason: str) -> CancelAnswer:
    return cancel(ctx, actor, run, lambda tx: ids.span(run), reason)


def cancel(ctx: Context, actor: Actor, run: int, find: Callable[[Tx], tuple[int, int]], reason: str) -> CancelAnswer:
    """Cancel the jobs in a span of keys: at once where they wait, with the next heartbeat where they run.

    `find` gives the span, in the transaction that cancels.
    """
    now = ctx.clock.wall()
    why = reason or f"canceled by {actor.name}"

    def work(tx: Tx) -> dict[str, Any]:
        span = find(tx)
        check_may_change(actor, find_run(tx, run))
        changes = Changes()
        answer: dict[int, Any] = {}
        jobs.hold_unfinished(tx, *span)
        fresh, before = jobs.request_cancel(tx, *span, why)
        for job in fresh:
            record(tx, now, "job.cancel_requested", actor, job=job, data={"reason": why})
        answer.update(dict.fromkeys([*fresh, *before], "cancel_requested"))
        answer.update(dict.fromkeys(cancel_queued(tx, changes, actor, *span, why, now), State.CANCELED.value))
        for job in jobs.terminal_in(tx, *span):
            answer.setdefault(job, "already_terminal")
        settle(tx, changes, actor, now)
        return {ids.name(job): answer[job] for job in sorted(answer)}

    return CancelAnswer(jobs=write(ctx, work))
