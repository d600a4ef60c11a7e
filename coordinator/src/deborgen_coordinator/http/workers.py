"""Workers: the calls that workers make, and the calls that people make about them."""

from __future__ import annotations

import math

from deborgen_coordinator.http.answers import HandlerAnswer
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.http.streams import client_is_gone
from deborgen_coordinator.operations.workers import claim as claiming
from deborgen_coordinator.operations.workers import finish as finishing
from deborgen_coordinator.operations.workers import heartbeat as heartbeats
from deborgen_coordinator.operations.workers import leave as leaving
from deborgen_coordinator.operations.workers import look as workers
from deborgen_coordinator.operations.workers import register as registering
from deborgen_coordinator.operations.workers import steer as steering
from deborgen_shared import contract, headers
from deborgen_shared import messages as m
from deborgen_shared.queries import LeaveQuery, NoQuery


@serves(contract.LIST_WORKERS)
def list_workers(request: CallRequest[None, NoQuery]) -> m.Workers:
    return workers.list_workers(request.ctx)


@serves(contract.GET_WORKER)
def get_worker(request: CallRequest[None, NoQuery]) -> m.Worker:
    return workers.get_worker(request.ctx, request.name)


@serves(contract.STEER_WORKER)
def steer(request: CallRequest[m.SteerWorker, NoQuery]) -> m.Worker:
    return steering.steer(request.ctx, request.actor, request.name, request.body)


@serves(contract.REGISTER)
def register(request: CallRequest[m.Register, NoQuery]) -> m.Registered:
    return registering.register(request.ctx, request.actor, request.name, request.body)


@serves(contract.CLAIM)
def claim(request: CallRequest[m.Claim, NoQuery]) -> m.Claimed | HandlerAnswer:
    answer = claiming.claim(
        request.ctx, request.actor, request.name, request.body, lambda: client_is_gone(request.environ)
    )
    if isinstance(answer, claiming.NoJobs):
        return HandlerAnswer(204, None, {headers.RETRY_AFTER: str(math.ceil(answer.retry_after))})
    return answer


@serves(contract.HEARTBEAT)
def heartbeat(request: CallRequest[m.Heartbeat, NoQuery]) -> m.HeartbeatAnswer:
    return heartbeats.heartbeat(request.ctx, request.actor, request.name, request.body)


@serves(contract.FINISH)
def finish(request: CallRequest[m.Finish, NoQuery]) -> m.Finished:
    return finishing.finish(request.ctx, request.actor, request.name, request.body)


@serves(contract.LEAVE)
def leave(request: CallRequest[None, LeaveQuery]) -> HandlerAnswer:
    leaving.leave(request.ctx, request.actor, request.name, request.query.session)
    return HandlerAnswer(204)
