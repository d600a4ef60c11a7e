"""Runs: the list, and what can be done to several at once; and one run with its steps, jobs and artifacts."""

from __future__ import annotations

from functools import partial
from typing import cast, get_args

from flask import Response

from deborgen_coordinator.operations.attempts import artifacts
from deborgen_coordinator.operations.jobs import look
from deborgen_coordinator.operations.lookup import check_may_change, find_run
from deborgen_coordinator.operations.runs import cancel, steps
from deborgen_coordinator.operations.runs import look as runs
from deborgen_coordinator.operations.runs import overview as overviews
from deborgen_coordinator.operations.runs.retry import retry_run
from deborgen_coordinator.web import archive, step_graph, words
from deborgen_coordinator.web.pages import PageRequest, action, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared import headers
from deborgen_shared.calls import PATH_NAMES
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import Job, Jobs, Retried, Retry, Run, StepView
from deborgen_shared.queries import JobsQuery, RunJobsQuery, RunsQuery
from deborgen_shared.states import State

#: A page shows this many runs of the list, jobs of a run, and artifacts of a run.
RUNS_PER_PAGE, JOBS_PER_PAGE, FILES_PER_PAGE = 50, 60, 30
#: The order of a run's jobs, while nobody asks for those of one state.
SHOWN_FIRST = (State.FAILED, State.RUNNING, State.QUEUED, State.CANCELED, State.SUCCEEDED)


@page("/runs")
def list_runs(request: PageRequest) -> HtmlAnswer:
    found = runs.list_runs(request.ctx, request.read(RunsQuery, limit=RUNS_PER_PAGE))
    return request.render("runs.html", runs=found.items, next=found.next)


@page("/runs/{run}")
def show_run(request: PageRequest) -> HtmlAnswer:
    ctx, number = request.ctx, request.run
    run = runs.get_run(ctx, number)
    state = request.read(RunJobsQuery).state
    jobs = _chosen_jobs(request, run, state) if state else _interesting_jobs(request, run)
    found = steps.steps(ctx, number).items
    listed = artifacts.of_run(ctx, number, request.query.get("files"), FILES_PER_PAGE)
    return request.render(
        "run.html",
        run=run,
        left=_seconds_left(run, ctx.clock.wall()),
        state=state,
        jobs=jobs,
        steps=found,
        graph=step_graph.draw(found),
        overview=overviews.overview(ctx, number),
        artifacts=listed,
        document=_document(run, found),
    )


def _chosen_jobs(request: PageRequest, run: Run, state: State) -> Jobs:
    return look.list_jobs(request.ctx, request.read(JobsQuery, run=run.id, state=state, limit=JOBS_PER_PAGE))


def _interesting_jobs(request: PageRequest, run: Run) -> Jobs:
    """The first jobs of each state: those that people look for come first."""
    found: list[Job] = []
    for state in SHOWN_FIRST:
        if getattr(run.jobs, state) and len(found) < JOBS_PER_PAGE:
            most = JOBS_PER_PAGE - len(found) if state is SHOWN_FIRST[-1] else min(25, JOBS_PER_PAGE - len(found))
            found += look.list_jobs(request.ctx, JobsQuery(run=run.id, state=state, limit=most)).items
    return Jobs(items=found, next=None)


def _seconds_left(run: Run, now: float) -> float | None:
    """About how long a run goes on, if it goes on as fast as before; None if nobody can tell."""
    counts = run.jobs
    ended = counts.succeeded + counts.failed + counts.canceled
    if run.finished_at or not ended or not counts.running:
        return None
    return (counts.queued + counts.running) * (now - run.created_at.timestamp()) / ended


def _document(run: Run, found: list[StepView]) -> str:
    """The job file as the coordinator keeps it: with all defaults, and without the parameters, which the jobs have."""
    if len(found) == 1 and found[0].id is None:
        return words.indented(found[0].spec)
    listed = [{"id": step.id, "needs": step.needs, **step.spec} for step in found]
    return words.indented({"name": run.name, "steps": listed})


@page("/runs/{run}/artifacts.tar")
def download_all(request: PageRequest) -> Response:
    """All artifacts of a run as one archive, in a folder per job."""
    runs.get_run(request.ctx, request.run)
    sent = {
        headers.CONTENT_DISPOSITION: f'attachment; filename="run-{request.run}.tar"',
        headers.CONTENT_TYPE_OPTIONS: "nosniff",
        headers.CACHE_CONTROL: "no-store",
    }
    body = request.streams.send(request.actor, archive.of_run(request.ctx, request.run))
    return Response(body, 200, sent, content_type="application/x-tar", direct_passthrough=True)


@action("/runs/{run}/cancel")
def cancel_run(request: PageRequest) -> HtmlAnswer:
    answer = cancel.cancel_run(request.ctx, request.actor, request.run, "")
    return request.go(f"/runs/{request.run}", done="cancellation", n=str(len(answer.jobs)))


@action("/runs/{run}/retry")
def retry_one(request: PageRequest) -> HtmlAnswer:
    """Retry a run, and show the new one."""
    only = request.field("only", Retry().only)
    if only not in get_args(Retried):
        raise Refusal(Code.MALFORMED, f"{only[:40]!r} does not say which jobs to retry", "go back and try again")
    new, _ = retry_run(request.ctx, request.actor, request.run, Retry(only=cast(Retried, only)), request.once(), "")
    return request.go(f"/runs/{new.id}")


@action("/runs/cancel")
def cancel_runs(request: PageRequest) -> HtmlAnswer:
    canceled = sum(len(cancel.cancel_run(request.ctx, request.actor, run, "").jobs) for run in _chosen(request))
    return request.go("/runs", done="cancellation", n=str(canceled))


@action("/runs/retry")
def retry_runs(request: PageRequest) -> HtmlAnswer:
    chosen = _chosen(request)
    for run in chosen:
        # A form that is sent twice retries once.
        retry_run(request.ctx, request.actor, run, Retry(), f"{request.once()}.{run}", "")
    return request.go("/runs", done="retry", n=str(len(chosen)))


def _chosen(request: PageRequest) -> list[int]:
    """The runs whose boxes are ticked. A run that this person may not change is refused before any other is changed."""
    read = PATH_NAMES["run"].parse
    chosen = [int(read(text)) for text in request.form.get("run", [])]
    if not chosen:
        raise Refusal(Code.MALFORMED, "no run is chosen", "tick the boxes in front of some runs first")
    for run in chosen:
        check_may_change(request.actor, request.ctx.store.read(partial(find_run, run=run)))
    return chosen
