"""Runs as people see them, and their results table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from deborgen_shared.messages import ResultRow, Run, Runs
from deborgen_shared.queries import RunsQuery

from ... import ids
from ...storage import jobs, runs, specs
from ...storage.database import DatabaseConnection
from .. import views
from ..context import Actor, Context
from ..lookup import Noun, UnknownName, find_run, parse_cursor

#: Read this many rows of a results table at once.
RESULTS_PAGE = 2000


def get_run(ctx: Context, run: int) -> Run:
    return views.run(ctx.store.read(lambda reader: find_run(reader, run)))


def last_run(ctx: Context, actor: Actor) -> Run:
    """The newest run of the person who asks."""
    rows = ctx.store.read(lambda reader: runs.select(reader, submitter=actor.name, limit=1))
    if not rows:
        raise UnknownName(Noun.LAST_RUN, f"{actor.name} has not submitted a run yet")
    return views.run(rows[0])


def list_runs(ctx: Context, query: RunsQuery) -> Runs:
    """Runs, newest first. A label is `name=value`, or just a name for any value."""
    name, equals, value = (query.label or "").partition("=")
    limit = query.limit
    rows = ctx.store.read(
        lambda reader: runs.select(
            reader,
            state=query.state,
            submitter=query.submitter,
            label=(name, value if equals else None) if query.label is not None else None,
            cursor=parse_cursor(query.cursor),
            limit=limit + 1,
        )
    )
    more = str(rows[limit - 1].id) if len(rows) > limit else None
    return Runs(items=[views.run(row) for row in rows[:limit]], next=more)


def results(ctx: Context, run: int) -> Iterator[ResultRow]:
    """One row per job. Rows are read page by page, so that a slow reader blocks nobody."""

    def look(reader: DatabaseConnection) -> dict[int, str | None]:
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
