"""Show runs and their results tables to people."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from deborgen_shared.messages import ResultRow, Run, Runs
from deborgen_shared.queries import RunsQuery
from deborgen_shared.states import State

from ... import ids
from ...storage import jobs, runs, specs
from ...storage.database import DatabaseConnection
from ...storage.jobs import JobWithResult
from .. import views
from ..context import Actor, Context
from ..lookup import Noun, UnknownName, find_run, parse_cursor

#: Read this many rows of a results table at once.
RESULTS_PAGE = 2000


def get_run(ctx: Context, run: int) -> Run:
    return views.run(ctx.store.read(lambda reader: find_run(reader, run)))


def last_run(ctx: Context, actor: Actor) -> Run:
    """The newest run that the actor has submitted."""
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


def results(ctx: Context, run: int, *, retries: bool = False) -> Iterator[ResultRow]:
    """One row per job. Rows are read page by page, so that a slow reader blocks nobody.

    With `retries`, a job whose retry succeeded is replaced by the newest of those retries.
    """

    def look(reader: DatabaseConnection) -> tuple[dict[int, str | None], list[int]]:
        find_run(reader, run)
        names = {step.number: step.name for step in specs.steps(reader, run)}
        return names, runs.retries(reader, run) if retries else []

    return _result_rows(ctx, run, *ctx.store.read(look))


def _result_rows(ctx: Context, run: int, names: dict[int, str | None], retries: list[int]) -> Iterator[ResultRow]:
    first, last = ids.span(run)
    while True:
        page, newest = ctx.store.read(partial(_page, first=first, last=last, retries=retries))
        for own in page:
            found = newest.get(ids.index_of(own.id), own)
            yield ResultRow(
                job=ids.name(found.id),
                step=names[found.step],
                params=views.loads(found.params),
                result=views.loads(found.result),
                state=found.state,
                seconds=found.seconds,
                worker=found.worker,
                retry_of=None if found is own else ids.name(own.id),
            )
        if len(page) < RESULTS_PAGE:
            return
        first = page[-1].id + 1


def _page(
    reader: DatabaseConnection, *, first: int, last: int, retries: list[int]
) -> tuple[list[JobWithResult], dict[int, JobWithResult]]:
    """A page of jobs, and for each index the newest successful retry of that job."""
    page = jobs.results(reader, first, last, RESULTS_PAGE)
    newest: dict[int, JobWithResult] = {}
    for retry in retries if page else []:
        begin, end = (ids.key(retry, ids.index_of(edge.id)) for edge in (page[0], page[-1]))
        successes = jobs.results(reader, begin, end, RESULTS_PAGE, state=State.SUCCEEDED)
        newest |= {ids.index_of(row.id): row for row in successes}
    return page, newest
