"""Workers: what they say to the coordinator, and what people see of them."""

from __future__ import annotations

import math

import msgspec

from deborgen_coordinator.http.answers import Reply
from deborgen_coordinator.http.routes import ADMINS, PEOPLE, WORKERS, Answer, Call, NoQuery, route
from deborgen_coordinator.http.streams import client_is_gone
from deborgen_coordinator.operations import workers
from deborgen_shared import messages as m
from deborgen_shared.errors import Code

FENCED = (Code.SUPERSEDED, Code.STALE_ATTEMPT)


@route(
    "GET", "/v1/workers", roles=PEOPLE, answers={200: Answer("the workers", m.Workers)},
    summary="Who is there: state, labels, what is free, what runs.",
)  # fmt: skip
def list_workers(call: Call[None, NoQuery]) -> m.Workers:
    return workers.list_workers(call.ctx)


@route("GET", "/v1/workers/{name}", roles=PEOPLE, answers={200: Answer("the worker", m.Worker)}, summary="One worker.")
def get_worker(call: Call[None, NoQuery]) -> m.Worker:
    return workers.get_worker(call.ctx, call.name)


@route(
    "PATCH", "/v1/workers/{name}", roles=ADMINS, body=m.SteerWorker, answers={200: Answer("the worker", m.Worker)},
    summary="Pause or drain a worker, or let it go on.",
)  # fmt: skip
def steer(call: Call[m.SteerWorker, NoQuery]) -> m.Worker:
    return workers.steer(call.ctx, call.actor, call.name, call.body)


@route(
    "PUT", "/v1/workers/{name}", roles=WORKERS, body=m.Register, limit="max_body", refusals=FENCED,
    answers={200: Answer("how to behave, and what it has lost", m.Registered)},
    summary="Register: a new session of a worker, which says what it still holds.",
)  # fmt: skip
def register(call: Call[m.Register, NoQuery]) -> m.Registered:
    return workers.register(call.ctx, call.actor, call.name, call.body)


@route(
    "POST", "/v1/workers/{name}/claim", roles=WORKERS, body=m.Claim, limit="max_body", refusals=FENCED,
    answers={
        200: Answer("the attempts to run", m.Claimed),
        204: Answer("nothing to do", None, headers={"Retry-After": "seconds after which to ask again"}),
    },
    summary="Claim jobs that fit. It waits until there is one or the time is up.",
)  # fmt: skip
def claim(call: Call[m.Claim, NoQuery]) -> m.Claimed | Reply:
    answer = workers.claim(call.ctx, call.actor, call.name, call.body, lambda: client_is_gone(call.environ))
    if isinstance(answer, workers.NoWork):
        return Reply(204, None, {"Retry-After": str(math.ceil(answer.retry_after))})
    return answer


@route(
    "POST", "/v1/workers/{name}/heartbeat", roles=WORKERS, body=m.Heartbeat, limit="max_body", refusals=FENCED,
    answers={200: Answer("what to do with each attempt, and orders for the worker", m.HeartbeatAnswer)},
    summary="Renew the leases of what runs.",
)  # fmt: skip
def heartbeat(call: Call[m.Heartbeat, NoQuery]) -> m.HeartbeatAnswer:
    return workers.heartbeat(call.ctx, call.actor, call.name, call.body)


@route(
    "POST", "/v1/workers/{name}/finish", roles=WORKERS, body=m.Finish, limit="max_body",
    refusals=(*FENCED, Code.INVALID_JOB),
    answers={200: Answer("what became of each result", m.Finished)},
    summary="Report how attempts ended.",
)  # fmt: skip
def finish(call: Call[m.Finish, NoQuery]) -> m.Finished:
    return workers.finish(call.ctx, call.actor, call.name, call.body)


class LeaveQuery(msgspec.Struct, frozen=True):
    session: m.Token | None = None


@route(
    "DELETE", "/v1/workers/{name}", roles=WORKERS, query=LeaveQuery, refusals=(Code.SUPERSEDED,),
    answers={204: Answer("it has left", None)},
    summary="Leave: what the worker held is released. With its `session`, only if that is the newest.",
)  # fmt: skip
def leave(call: Call[None, LeaveQuery]) -> Reply:
    workers.leave(call.ctx, call.actor, call.name, call.query.session)
    return Reply(204)
