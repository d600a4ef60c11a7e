"""Show runs and their results tables to people."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from deborgen_shared.messages import ResultRow, Run, Runs
from deborgen_shared.queries import RunsQuery
from deborgen_shared.states import State

from ... import ids
from ...storage import jobs, rounds, runs, specs
from ...storage.database import DatabaseConnection
from ...storage.jobs import JobWithResult
from ...storage.rows import RunRow
from .. import views
from ..context import Actor, Context
from ..lookup import Noun, UnknownName, find_run, parse_cursor
from ..rounds import find_work

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
    """One row per job, and one per loop: that of its newest work. Rows are read page by page, so that a slow reader
    blocks nobody.

    With `retries`, a job whose retry succeeded is replaced by the newest of those retries.
    """

    def look(reader: DatabaseConnection) -> tuple[dict[int, str | None], list[RunRow]]:
        owner = find_run(reader, run)
        names = {step.number: step.name for step in specs.steps(reader, run)}
        later = runs.retries(reader, run) if retries else []
        return names, [owner, *(runs.get_existing(reader, each) for each in later)]

    return _result_rows(ctx, *ctx.store.read(look))


def _result_rows(ctx: Context, names: dict[int, str | None], owners: list[RunRow]) -> Iterator[ResultRow]:
    first, last = ids.span(owners[0].id)
    while True:
        page, newest = ctx.store.read(partial(_page, first=first, last=last, owners=owners))
        for key, own in page.items():
            found = newest.get(ids.index_of(key), own)
            yield ResultRow(
                job=ids.name(found.id),
                step=names[found.step],
                params=views.loads(found.params),
                result=views.loads(found.result),
                state=found.state,
                seconds=found.seconds,
                worker=found.worker,
                retry_of=None if found is own else ids.name(own.id),
                round=found.round,
                verified=found.verified,
            )
        if len(page) < RESULTS_PAGE:
            return
        first = max(page) + 1


def _page(
    reader: DatabaseConnection, *, first: int, last: int, owners: list[RunRow]
) -> tuple[dict[int, JobWithResult], dict[int, JobWithResult]]:
    """A page of jobs, by the id of the job or of the loop's first job; and for each index the newest successful retry.

    `owners` has the run and its retries.
    """
    owner, *later = owners
    has_loops = owner.next_index > 0
    page = {row.id: row for row in jobs.results(reader, first, last, RESULTS_PAGE, has_loops=has_loops)}
    newest: dict[int, JobWithResult] = {}
    if page and has_loops:
        page |= _loops(reader, owner, min(page), max(page))
    for retry in later if page else []:
        begin, end = (ids.key(retry.id, ids.index_of(edge)) for edge in (min(page), max(page)))
        rows = jobs.results(reader, begin, end, RESULTS_PAGE, state=State.SUCCEEDED, has_loops=retry.next_index > 0)
        loops = _loops(reader, retry, begin, end) if retry.next_index else {}
        newest |= {ids.index_of(row.id): row for row in rows if row.id not in loops}
        newest |= {ids.index_of(point): row for point, row in loops.items() if row.verified}
    return page, newest


def _loops(reader: DatabaseConnection, owner: RunRow, first: int, last: int) -> dict[int, JobWithResult]:
    """The newest work of each loop in a span, also if it was done in the run of which this one is a retry."""
    found = rounds.last_works(reader, first, last)
    for place, verified in rounds.checked_elsewhere(reader, first, last) if owner.retry_of is not None else ():
        job = find_work(reader, owner, place) if place.point not in found else None
        if job is not None:
            [row] = jobs.results(reader, job, job, 1)
            found[place.point] = row._replace(round=place.round, verified=verified)
    return found
