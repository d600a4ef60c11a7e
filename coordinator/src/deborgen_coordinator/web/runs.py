"""The list of runs, and what can be done to several at once."""

from __future__ import annotations

from functools import partial

from deborgen_coordinator.operations.lookup import check_may_change, find_run
from deborgen_coordinator.operations.runs import cancel
from deborgen_coordinator.operations.runs import look as runs
from deborgen_coordinator.operations.runs.retry import retry_run
from deborgen_coordinator.web.pages import PageRequest, action, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.calls import PATH_NAMES
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import Retry
from deborgen_shared.queries import RunsQuery

#: A page of the list shows this many runs.
RUNS_PER_PAGE = 50


@page("/runs")
def list_runs(request: PageRequest) -> HtmlAnswer:
    found = runs.list_runs(request.ctx, request.read(RunsQuery, limit=RUNS_PER_PAGE))
    return request.render("runs.html", runs=found.items, next=found.next)


@action("/runs/cancel")
def cancel_runs(request: PageRequest) -> HtmlAnswer:
    canceled = sum(len(cancel.cancel_run(request.ctx, request.actor, run, "").jobs) for run in _chosen(request))
    return request.go("/runs", done="cancellation", n=str(canceled))


@action("/runs/retry")
def retry_runs(request: PageRequest) -> HtmlAnswer:
    chosen = _chosen(request)
    for run in chosen:
        # A form that is sent twice retries once.
        retry_run(request.ctx, request.actor, run, Retry().only, f"{request.field('once')[:100]}.{run}", "")
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
