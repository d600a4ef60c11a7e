"""Claiming: picking jobs, marking them running, creating the attempts and their leases, in one atomic step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from deborgen_shared.messages import Assignment, Claim, Claimed, NextClaim
from deborgen_shared.states import WORKING

from ... import ids
from ...leases import deadline, sweep_interval
from ...placement import Amounts, Head, Machine, Needs, Wish, choose, lacks
from ...storage import attempts, jobs, workers
from ...storage.rows import WorkerRow
from ..catalog import Spec
from ..context import Actor, Context
from ..fleet import machine
from ..work import Work
from .assignments import Picked, assign, expiry, find_owners
from .sessions import check_identity, check_session

_decode = msgspec.json.Decoder().decode

#: Jobs that another coordinator holds at this moment are looked at again after this.
CONTENDED_SECONDS = 0.1
#: A worker that is paused, drained or resting need not ask often.
IDLE_RETRY = 10.0


@dataclass(frozen=True)
class NoWork:
    """Nothing fits now; ask again after this many seconds."""

    retry_after: float


@dataclass
class Given:
    """What one claim was given, and what was learned on the way; kept once it is committed."""

    assignments: list[Assignment] = field(default_factory=list)
    asked_before: bool = False
    #: When the lease clock was read, on the steady clock.
    granted_at: float = 0.0
    #: Whether jobs may be left that another one could take.
    left: bool = True
    #: Whether another coordinator was just looking at jobs that might have fitted; it may leave some.
    contended: bool = False
    idle: bool = False
    #: Whether the worker seems to be gone: it waits here, and has not been heard of for a while.
    silent: bool = False
    waits: list[float] = field(default_factory=list)
    specs: dict[int, Spec] = field(default_factory=dict)
    needs: dict[int, Needs] = field(default_factory=dict)


def claim(
    ctx: Context, actor: Actor, name: str, body: Claim, gone: Callable[[], bool] = lambda: False
) -> Claimed | NoWork:
    """Jobs for this worker, at once or as soon as one fits, within the time it is willing to wait.

    The same request gets the same attempts back, those that still live, with their leases renewed, and never more. A
    finish of the worker may carry the same request meanwhile, with more room: then this one asks for as much too.
    `gone` tells whether nobody waits for the answer any more: a job that came then would lie with a dead worker until
    its lease is over.
    """
    arrived = ctx.clock.steady()
    check_identity(actor, name)
    until = arrived + body.wait_seconds
    waiting = False
    question = ctx.wakeups.ask(name, body)
    try:
        while True:
            if waiting and gone():
                ctx.wakeups.call_next()
                return NoWork(0.0)
            seen = ctx.wakeups.count("jobs")
            given = _look(ctx, actor, name, question.claim, arrived if waiting else None)
            ctx.catalog.keep(given.specs, given.needs)
            if given.assignments or given.asked_before:
                ctx.metrics.waited(given.waits)
                return Claimed(assignments=given.assignments, waited_seconds=max(0.0, given.granted_at - arrived))
            left = until - ctx.clock.steady()
            if given.idle:
                return NoWork(IDLE_RETRY)
            if given.silent:
                return NoWork(0.0)
            if left <= 0 or ctx.wakeups.closed:
                return NoWork(0.0 if body.wait_seconds else 1.0)
            if not waiting and not ctx.wakeups.enter():
                return NoWork(_poll_interval(ctx))
            waiting = True
            ctx.wakeups.wait("jobs", seen, min(left, CONTENDED_SECONDS) if given.contended else left, question)
    finally:
        ctx.wakeups.forget(question)
        if waiting:
            ctx.wakeups.leave()


def _look(ctx: Context, actor: Actor, name: str, body: Claim, waiting_since: float | None) -> Given:
    """Take what fits. A claim that was woken for it lets the next one look, unless nothing is left for certain."""
    left = True

    def look(work: Work) -> Given:
        return take(work, check_session(work.tx, name, body.session), body, waiting_since)

    try:
        given = ctx.work(actor, look)
        left = given.left
        return given
    finally:
        if waiting_since is not None and left:
            ctx.wakeups.call_next()


def _poll_interval(ctx: Context) -> float:
    """The poll interval that keeps all workers without a place to wait at `poll_rate` requests per second together."""
    online = ctx.store.read(workers.count_online)
    beyond = max(1, online - ctx.settings.max_waiters)
    return max(1.0, beyond / ctx.settings.poll_rate) * random.uniform(0.9, 1.1)


def take(work: Work, worker: WorkerRow, body: NextClaim, waiting_since: float | None = None) -> Given:
    """What fits, for the newest session of this worker, in one transaction.

    `waiting_since` is when a claim arrived that has waited and was woken.
    """
    given = Given(granted_at=work.ctx.clock.steady())
    before = attempts.claim_of(work.tx, worker.id, body.request_id)
    if before is not None:
        given.asked_before = True
        _give_again(work, before, given)
        return given
    if worker.paused or worker.drain or worker.state not in WORKING or worker.rest_clock > work.clock:
        given.idle = True
        return given
    if waiting_since is not None and _silent(work, worker, given.granted_at - waiting_since):
        given.silent = True
        return given
    picked = _pick(work, worker, body, given)
    if picked:
        _grant(work, worker, body.request_id, picked, given)
    if waiting_since is not None:
        given.left = jobs.any_ready(work.tx)
    return given


def _silent(work: Work, worker: WorkerRow, waited: float) -> bool:
    """Whether two heartbeats of a waiting worker are missing: a job would lie with it until its lease is over.

    Its connection may look alive for a long time after its machine has gone. If it is there after all, it asks again.
    """
    settings = work.ctx.settings
    patience = 2 * settings.heartbeat_seconds + sweep_interval(settings.lease_seconds)
    return waited > patience and work.clock - worker.seen_clock > patience


def _give_again(work: Work, claim_id: int, given: Given) -> None:
    """What an earlier request of the same id was given and still lives, with full leases again."""
    attempts.renew_claim(work.tx, claim_id, work.lease_end)
    picked = [Picked(*row) for row in attempts.live_of_claim(work.tx, claim_id)]
    given.assignments = assign(work, picked, find_owners(work.tx, picked), given.specs)


def _pick(work: Work, worker: WorkerRow, body: NextClaim, given: Given) -> list[Picked]:
    ctx, tx = work.ctx, work.tx
    heads = jobs.lane_heads(tx)
    if not heads:
        return []
    this: Machine = machine(worker)
    fits: dict[int, bool] = {}

    def needs_of(class_id: int) -> Needs:
        if class_id not in given.needs:
            given.needs[class_id] = ctx.catalog.needs(tx, class_id)
        return given.needs[class_id]

    open_heads: list[Head] = []
    for head in heads:
        if head.avoid == worker.id:
            continue
        if head.class_id not in fits:
            fits[head.class_id] = not lacks(this, needs_of(head.class_id))
        if fits[head.class_id]:
            open_heads.append(head)
    details: dict[int, Picked] = {}

    def fetch(head: Head, most: int) -> list[tuple[int, int]]:
        rows = jobs.first_of_lane(tx, head, most)
        given.contended |= not rows
        for _, job, step, spec_id, params, last in rows:
            details[job] = Picked(job, last + 1, step, spec_id, params)
        return [(row[0], row[1]) for row in rows]

    free = Amounts(
        min(body.free.cpus, this.capacity.cpus),
        min(body.free.memory, this.capacity.memory),
        min(body.free.gpus, this.capacity.gpus),
        body.free.disk or None,
    )
    chosen = choose(
        open_heads,
        Wish(body.max, free, body.ahead),
        needs_of=needs_of,
        fetch=fetch,
        used=_used(work, needs_of) if ctx.settings.scheduler == "fair" else None,
        room=_room(work, open_heads),
    )
    return [details[job] for job, _ in chosen]


def _used(work: Work, needs_of: Callable[[int], Needs]) -> dict[int, float]:
    used, running = attempts.usage(work.tx, work.clock)
    for submitter, class_id, seconds in running:
        cpus = max(needs_of(class_id).resources.cpus, 0.001)
        used[submitter] = used.get(submitter, 0.0) + float(seconds) * cpus
    return used


def _room(work: Work, heads: list[Head]) -> dict[int, int]:
    most = work.ctx.settings.max_running_per_submitter
    if not most:
        return {}
    running = jobs.running_per_submitter(work.tx)
    return {head.submitter: most - running.get(head.submitter, 0) for head in heads}


def _grant(work: Work, worker: WorkerRow, request_id: str, picked: list[Picked], given: Given) -> None:
    """Start the picked jobs: each gets an attempt with a lease."""
    claim_id = attempts.new_claim(work.tx, worker.id, request_id, work.now)
    work.start([(each.job, each.number) for each in picked], worker, expiry(work))
    owners = find_owners(work.tx, picked)
    given.assignments = assign(work, picked, owners, given.specs)
    clock, lease_clock, now = work.clock, work.lease_end, work.now
    rows = []
    for each, assignment in zip(picked, given.assignments, strict=True):
        ends = deadline(clock, assignment.timeout_seconds)
        rows.append((each.job, each.number, worker.id, worker.session, claim_id, clock, ends, lease_clock, now))
        given.waits.append(now - owners[ids.run_of(each.job)].created_at)
    attempts.grant(work.tx, rows)
