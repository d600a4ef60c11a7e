"""The first page: whether the pool is well, how far my sweeps are, what failed last. And finding a run, a job or a
machine by its name."""

from __future__ import annotations

import re
from statistics import fmean
from typing import NamedTuple

from deborgen_coordinator.operations.jobs import look as jobs
from deborgen_coordinator.operations.runs import look as runs
from deborgen_coordinator.operations.workers import look as workers
from deborgen_coordinator.web import figures
from deborgen_coordinator.web.pages import PageRequest, has_page, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.messages import NAME, Job, Run, Worker
from deborgen_shared.queries import JobsQuery, RunsQuery
from deborgen_shared.states import Availability, State, WorkerState

#: Look at this many unfinished runs of each state, and at this many of the jobs that ended last.
MOST_RUNS, LAST_JOBS = 200, 50
#: Show this many of each kind.
SHOWN = 8
#: Machines of these kinds take part right now.
READY = frozenset({Availability.FREE, Availability.BUSY, Availability.LIMITED})
_PLACE = re.compile(
    r"#?(?:run )?(?P<run>[1-9][0-9]{0,11})(?:\.(?P<index>[1-9][0-9]{0,8})(?:/(?P<number>[1-9][0-9]{0,8}))?)?"
)


class PoolHealth(NamedTuple):
    """The pool in one sentence: machines, waiting and running jobs, and about how many seconds of work wait."""

    ready: int
    machines: int
    queued: int
    running: int
    seconds: float | None


@page("/")
def now(request: PageRequest) -> HtmlAnswer:
    ctx = request.ctx
    members = [each for each in workers.list_workers(ctx).items if each.state != WorkerState.LEFT]
    unfinished = [run for state in (State.RUNNING, State.QUEUED) for run in _runs(request, state)]
    ended = jobs.list_jobs(ctx, JobsQuery(state=State.SUCCEEDED, limit=LAST_JOBS)).items
    mine = [run for run in unfinished if run.submitter == request.actor.name]
    return request.render(
        "now.html",
        health=_health(members, unfinished, ended),
        mine=mine[:SHOWN],
        others=[run for run in unfinished if run.submitter != request.actor.name][:SHOWN],
        failed=jobs.list_jobs(ctx, JobsQuery(state=State.FAILED, limit=SHOWN)).items,
        members=members,
        charts=figures.pool_charts(request),
        can_submit=has_page("/submit"),
    )


def _runs(request: PageRequest, state: State) -> list[Run]:
    return runs.list_runs(request.ctx, RunsQuery(state=state, limit=MOST_RUNS)).items


def _health(members: list[Worker], unfinished: list[Run], ended: list[Job]) -> PoolHealth:
    ready = [each for each in members if each.availability in READY]
    queued, running = (sum(getattr(run.jobs, state) for run in unfinished) for state in (State.QUEUED, State.RUNNING))
    took = [(job.finished_at - job.started_at).total_seconds() for job in ended if job.finished_at and job.started_at]
    places = running or sum(max(1, int(each.capacity.cpus)) for each in ready)
    seconds = queued * fmean(took) / places if queued and took and ready and places else None
    return PoolHealth(len(ready), len(members), queued, running, seconds)


@page("/find")
def find(request: PageRequest) -> HtmlAnswer:
    """Where the field at the top leads: `42`, `42.7`, `42.7/2`, `last`, the name of a machine, or a label."""
    wanted = request.query.get("q", "").strip()
    if found := _PLACE.fullmatch(wanted):
        if not found["index"]:
            return request.go(f"/runs/{found['run']}")
        attempt = {"attempt": found["number"]} if found["number"] else {}
        return request.go(f"/jobs/{found['run']}.{found['index']}", **attempt)
    if wanted == "last":
        return request.go(f"/runs/{runs.last_run(request.ctx, request.actor).id}")
    if wanted.startswith("/") and not wanted.startswith("//"):
        return request.go("/find")
    if re.fullmatch(NAME, wanted) and wanted in {each.name for each in workers.list_workers(request.ctx).items}:
        return request.go(f"/workers/{wanted}")
    if re.fullmatch(rf"{NAME}(=.*)?", wanted) and ("=" in wanted or _is_label(request, wanted)):
        return request.go("/runs", label=wanted)
    return request.render("find.html", 404 if wanted else 200, wanted=wanted)


def _is_label(request: PageRequest, name: str) -> bool:
    return bool(runs.list_runs(request.ctx, RunsQuery(label=name, limit=1)).items)
