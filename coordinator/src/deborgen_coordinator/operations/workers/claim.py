"""Claim jobs: pick them, mark them as running, and create their attempts and leases, in one transaction."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from deborgen_shared.messages import Assignment, Claim, Claimed, NextClaim
from deborgen_shared.states import WORKING

from ... import ids
from ...leases import deadline, lease_check_interval
from ...placement import Amounts, Head, MachineOffer, Needs, Wish, choose, lacks
from ...storage import attempts, jobs, workers
from ...storage.rows import WorkerRow
from ..context import Actor, Context
from ..spec_cache import CachedSpec
from ..work import Work
from ..worker_fit import machine
from .assignments import Picked, assign, expiry, find_owners
from .sessions import check_identity, check_session

_decode = msgspec.json.Decoder().decode

#: Look again after this many seconds for jobs that another coordinator has locked.
CONTENDED_SECONDS = 0.1
#: A worker that is paused, drained or resting claims again after this many seconds.
NOT_WORKING_RETRY_SECONDS = 10.0


@dataclass(frozen=True)
class NoJobs:
    """No job fits now; claim again after this many seconds."""

    retry_after: float


@dataclass
class Grant:
    """What one claim was granted, and the specs and needs that it has read, which are cached after the commit."""

    assignments: list[Assignment] = field(default_factory=list)
    repeated: bool = False
    #: When the lease clock was read, on the steady clock.
    granted_at: float = 0.0
    #: Whether ready jobs may be left that another worker could run.
    jobs_left: bool = True
    #: Whether another coordinator has locked jobs that might fit; it may leave some.
    contended: bool = False
    #: Whether the worker is paused, drained or resting.
    not_working: bool = False
    #: Whether the worker seems to be gone: its claim waits, but its heartbeats are missing.
    silent: bool = False
    waits: list[float] = field(default_factory=list)
    specs: dict[int, CachedSpec] = field(default_factory=dict)
    needs: dict[int, Needs] = field(default_factory=dict)


def claim(
    ctx: Context, actor: Actor, name: str, body: Claim, gone: Callable[[], bool] = lambda: False
) -> Claimed | NoJobs:
    """Jobs for this worker, at once or as soon as one fits, within the time that the worker is willing to wait.

    A repeated request gets its live attempts back, with renewed leases, and never more. Meanwhile a finish of the
    worker may carry the same request with more free room; then this claim asks for that too. `gone` tells whether the
    client has disconnected: a job that is granted then would stay with a dead worker until its lease expires.
    """
    arrived = ctx.clock.steady()
    check_identity(actor, name)
    until = arrived + body.wait_seconds
    waiting = False
    open_claim = ctx.wakeups.open_claim(name, body)
    try:
        while True:
            if waiting and gone():
                ctx.wakeups.wake_next()
                return NoJobs(0.0)
            seen = ctx.wakeups.count("jobs")
            grant = _look(ctx, actor, name, open_claim.claim, arrived if waiting else None)
            ctx.spec_cache.keep(grant.specs, grant.needs)
            if grant.assignments or grant.repeated:
                ctx.metrics.waited(grant.waits)
                return Claimed(assignments=grant.assignments, waited_seconds=max(0.0, grant.granted_at - arrived))
            left = until - ctx.clock.steady()
            if grant.not_working:
                return NoJobs(NOT_WORKING_RETRY_SECONDS)
            if grant.silent:
                return NoJobs(0.0)
            if left <= 0 or ctx.wakeups.closed:
                return NoJobs(0.0 if body.wait_seconds else 1.0)
            if not waiting and not ctx.wakeups.take_slot():
                return NoJobs(_poll_interval(ctx))
            waiting = True
            ctx.wakeups.wait("jobs", seen, min(left, CONTENDED_SECONDS) if grant.contended else left, open_claim)
    finally:
        ctx.wakeups.close_claim(open_claim)
        if waiting:
            ctx.wakeups.release_slot()


def _look(ctx: Context, actor: Actor, name: str, body: Claim, waiting_since: float | None) -> Grant:
    """Take the jobs that fit. A claim that was woken wakes the next ones, unless no job is left for certain."""
    left = True

    def look(work: Work) -> Grant:
        return take(work, check_session(work.tx, name, body.session), body, waiting_since)

    try:
        grant = ctx.work(actor, look)
        left = grant.jobs_left
        return grant
    finally:
        if waiting_since is not None and left:
            ctx.wakeups.wake_next()


def _poll_interval(ctx: Context) -> float:
    """How often workers without a waiting slot should poll, so that all of them together make `poll_rate` requests per
    second."""
    online = ctx.store.read(workers.count_online)
    beyond = max(1, online - ctx.settings.max_waiters)
    return max(1.0, beyond / ctx.settings.poll_rate) * random.uniform(0.9, 1.1)


def take(work: Work, worker: WorkerRow, body: NextClaim, waiting_since: float | None = None) -> Grant:
    """Take the jobs that fit, for the newest session of this worker, in one transaction.

    `waiting_since` is the arrival time of a claim that has waited and was woken.
    """
    grant = Grant(granted_at=work.ctx.clock.steady())
    before = attempts.claim_of(work.tx, worker.id, body.request_id)
    if before is not None:
        grant.repeated = True
        _repeat_grant(work, before, grant)
        return grant
    if worker.paused or worker.drain or worker.state not in WORKING or worker.rest_clock > work.clock:
        grant.not_working = True
        return grant
    if waiting_since is not None and _is_silent(work, worker, grant.granted_at - waiting_since):
        grant.silent = True
        return grant
    picked = _pick(work, worker, body, grant)
    if picked:
        _grant(work, worker, body.request_id, picked, grant)
    if waiting_since is not None:
        grant.jobs_left = jobs.any_ready(work.tx)
    return grant


def _is_silent(work: Work, worker: WorkerRow, waited: float) -> bool:
    """Whether a waiting worker has missed two heartbeats: a job would stay with it until its lease expires.

    The connection may look alive long after its machine has gone. If the worker is alive after all, it claims again.
    """
    settings = work.ctx.settings
    patience = 2 * settings.heartbeat_seconds + lease_check_interval(settings.lease_seconds)
    return waited > patience and work.clock - worker.seen_clock > patience


def _repeat_grant(work: Work, claim_id: int, grant: Grant) -> None:
    """Return the live attempts that an earlier request with the same id was granted, with renewed leases."""
    attempts.renew_claim(work.tx, claim_id, work.lease_end)
    picked = [Picked(*row) for row in attempts.live_of_claim(work.tx, claim_id)]
    grant.assignments = assign(work, picked, find_owners(work.tx, picked), grant.specs)


def _pick(work: Work, worker: WorkerRow, body: NextClaim, grant: Grant) -> list[Picked]:
    ctx, tx = work.ctx, work.tx
    heads = jobs.lane_heads(tx)
    if not heads:
        return []
    this: MachineOffer = machine(worker)
    fits: dict[int, bool] = {}

    def needs_of(class_id: int) -> Needs:
        if class_id not in grant.needs:
            grant.needs[class_id] = ctx.spec_cache.needs(tx, class_id)
        return grant.needs[class_id]

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
        grant.contended |= not rows
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
        used=_usage(work, needs_of) if ctx.settings.scheduler == "fair" else None,
        room=_submitter_room(work, open_heads),
    )
    return [details[job] for job, _ in chosen]


def _usage(work: Work, needs_of: Callable[[int], Needs]) -> dict[int, float]:
    used, running = attempts.usage(work.tx, work.clock)
    for submitter, class_id, seconds in running:
        cpus = max(needs_of(class_id).resources.cpus, 0.001)
        used[submitter] = used.get(submitter, 0.0) + float(seconds) * cpus
    return used


def _submitter_room(work: Work, heads: list[Head]) -> dict[int, int]:
    most = work.ctx.settings.max_running_per_submitter
    if not most:
        return {}
    running = jobs.running_per_submitter(work.tx)
    return {head.submitter: most - running.get(head.submitter, 0) for head in heads}


def _grant(work: Work, worker: WorkerRow, request_id: str, picked: list[Picked], grant: Grant) -> None:
    """Start the picked jobs, each with an attempt and a lease."""
    claim_id = attempts.new_claim(work.tx, worker.id, request_id, work.now)
    work.start([(each.job, each.number) for each in picked], worker, expiry(work))
    owners = find_owners(work.tx, picked)
    grant.assignments = assign(work, picked, owners, grant.specs)
    clock, lease_clock, now = work.clock, work.lease_end, work.now
    rows = []
    for each, assignment in zip(picked, grant.assignments, strict=True):
        ends = deadline(clock, assignment.timeout_seconds)
        rows.append((each.job, each.number, worker.id, worker.session, claim_id, clock, ends, lease_clock, now))
        grant.waits.append(now - owners[ids.run_of(each.job)].created_at)
    attempts.grant(work.tx, rows)
