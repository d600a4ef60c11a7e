"""Show jobs to people: one job with all details, or lists."""

from __future__ import annotations

from typing import Any

import msgspec

from deborgen_shared.messages import Attempt, CheckpointName, Job, JobDetail, Jobs
from deborgen_shared.queries import JobsQuery
from deborgen_shared.states import State

from ... import ids
from ...leases import expires_at
from ...storage import attempts, jobs, lease_clock, specs
from ...storage.database import DatabaseConnection
from ...storage.rows import JobRow, RunRow, StepRow
from .. import views
from ..attempts import artifacts, checkpoints
from ..context import Context
from ..lookup import find_job, find_run, find_step, parse_cursor

#: The fields of each attempt, in the order of the columns that storage returns.
ATTEMPT_FIELDS = (
    "number worker outcome reason exit_code claimed_at started_at finished_at seconds log_size cpu_seconds peak_memory"
    " image lease_clock from_attempt from_checkpoint"
).split()


def get_job(ctx: Context, run: int, index: int) -> JobDetail:
    """A job with its spec, its artifacts and all its attempts."""
    now = ctx.clock.wall()

    def look(reader: DatabaseConnection) -> JobDetail:
        row = find_job(reader, run, index)
        spec = ctx.spec_cache.spec(reader, row.spec_id)
        began_at = attempts.program_starts(reader, [row.id]).get(row.id)
        fields = views.job_fields(row, find_run(reader, run), find_step(reader, row), spec, began_at)
        clock = lease_clock.read(reader)

        history = []
        for row_of_attempt in attempts.history(reader, row.id):
            values: dict[str, Any] = dict(zip(ATTEMPT_FIELDS, row_of_attempt, strict=True))
            for moment in ("claimed_at", "started_at", "finished_at"):
                values[moment] = views.maybe_when(values[moment])
            ends = values.pop("lease_clock")
            expires = None if ends is None else expires_at(now, clock, ends, ctx.settings.lease_seconds)
            start, saved = values.pop("from_attempt"), values.pop("from_checkpoint")
            if start is not None:
                values["went_on_from"] = CheckpointName(attempt=ids.attempt_name(row.id, start), number=saved)
            history.append(Attempt(**values, lease_expires_at=views.maybe_when(expires)))
        return JobDetail(
            **fields,
            spec=msgspec.json.decode(spec.raw),
            artifacts=artifacts.listed(ctx, reader, row.id),
            history=history,
            checkpoint=checkpoints.view(reader, row.id),
        )

    return ctx.store.read(look)


def list_jobs(ctx: Context, query: JobsQuery) -> Jobs:
    """The jobs of a run in order; without a run, the newest jobs first. The cursor is the id of the last job on a
    page."""
    run, limit = query.run, query.limit

    def look(reader: DatabaseConnection) -> Jobs:
        owners = {run: find_run(reader, run)} if run is not None else {}
        rows = jobs.select(
            reader,
            span=ids.span(run) if run is not None else None,
            state=query.state,
            worker=query.worker,
            cursor=parse_cursor(query.cursor),
            limit=limit + 1,
        )
        more = str(rows[limit - 1].id) if len(rows) > limit else None
        return Jobs(items=_show(ctx, reader, rows[:limit], owners), next=more)

    return ctx.store.read(look)


def _show(ctx: Context, reader: DatabaseConnection, rows: list[JobRow], owners: dict[int, RunRow]) -> list[Job]:
    """The jobs as wire messages. `owners` has the runs that are already known; other runs are read and added."""
    steps: dict[tuple[int, int], StepRow] = {}
    begun = attempts.program_starts(reader, [row.id for row in rows if row.state is State.RUNNING])
    shown = []
    for row in rows:
        run = ids.run_of(row.id)
        if run not in owners:
            owners[run] = find_run(reader, run)
        if (run, row.step) not in steps:
            steps.update({(run, step.number): step for step in specs.steps(reader, run)})
        spec = ctx.spec_cache.spec(reader, row.spec_id)
        shown.append(views.job(row, owners[run], steps[run, row.step], spec, begun.get(row.id)))
    return shown
