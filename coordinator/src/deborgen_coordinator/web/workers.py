"""The machines: a card for each, and a page with what ran there, what it offers, and why it refused work."""

from __future__ import annotations

from typing import NamedTuple

from deborgen_coordinator.operations.jobs import look as jobs
from deborgen_coordinator.operations.workers import look, past, steer
from deborgen_coordinator.web import figures
from deborgen_coordinator.web.pages import PageRequest, action, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.contract import ADMINS
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import SteerWorker, Worker
from deborgen_shared.queries import JobsQuery
from deborgen_shared.states import WorkerState

#: The page of a machine shows this many of its newest jobs, and of the newest events about it alone.
NEWEST = 30
#: What an admin can tell a machine.
ORDERS = {
    "pause": SteerWorker(paused=True),
    "drain": SteerWorker(drain=True),
    "resume": SteerWorker(paused=False, drain=False),
}


class OfferedShare(NamedTuple):
    """How much of something a machine offers, and how much of that is in use."""

    name: str
    used: float
    offered: float
    is_bytes: bool


def shares(worker: Worker) -> list[OfferedShare]:
    return [
        OfferedShare(name, max(0.0, offered - free), offered, name in ("memory", "disk"))
        for name, offered, free in (
            ("processors", worker.capacity.cpus, worker.free.cpus),
            ("memory", worker.capacity.memory, worker.free.memory),
            ("GPUs", worker.capacity.gpus, worker.free.gpus),
            ("disk", worker.capacity.disk, worker.free.disk),
        )
        if offered
    ]


@page("/workers")
def list_workers(request: PageRequest) -> HtmlAnswer:
    found = look.list_workers(request.ctx).items
    members = [each for each in found if each.state != WorkerState.LEFT]
    return request.render(
        "workers.html",
        workers=members,
        left=[each for each in found if each.state == WorkerState.LEFT],
        shares=shares,
        week=past.week(request.ctx),
    )


@page("/workers/{name}")
def show_worker(request: PageRequest) -> HtmlAnswer:
    name = request.names["name"]
    worker = look.get_worker(request.ctx, name)
    return request.render(
        "worker.html",
        worker=worker,
        shares=shares,
        chart=figures.on_page(figures.machine_chart(request)),
        hours=figures.window_of(request),
        windows=figures.WINDOWS,
        jobs=jobs.list_jobs(request.ctx, JobsQuery(worker=name, limit=NEWEST)).items,
        events=past.own_events(request.ctx, name, NEWEST),
    )


@action("/workers/{name}/steer", by=ADMINS)
def steer_worker(request: PageRequest) -> HtmlAnswer:
    order = ORDERS.get(request.field("order"))
    if order is None:
        raise Refusal(Code.MALFORMED, "the form does not say what to tell the machine", "go back and try again")
    steer.steer(request.ctx, request.actor, request.names["name"], order)
    return request.go(f"/workers/{request.names['name']}", done="steered")
