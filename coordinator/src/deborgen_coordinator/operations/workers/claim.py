"""Claim jobs: pick them, mark them as running, and create their attempts and leases, in one transaction."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from deborgen_shared.messages import Assignment, Claim, Claimed, NextClaim
from deborgen_shared.states import WORKING

from ... import ids
from ...blame import on_probation
from ...leases import deadline, lease_check_interval
from ...placement import MachineOffer, Needs
from ...storage import attempts, checkpoints, jobs, rounds, workers
from ...storage.rows import WorkerRow
from ..context import Actor, Context
from ..spec_cache import CachedSpec
from ..work import Work
from ..worker_fit import machine
from .assignments import CLAIM_BYTES, Picked, assign, expiry, find_owners
from .pick import Picking
from .sessions import check_identity, check_session

#: Look again after this many seconds if another coordinator has locked the jobs.
CONTENDED_SECONDS = 0.1
#: A worker that is paused, drained or resting claims again after this many seconds.
NOT_WORKING_RETRY_SECONDS = 10.0


@dataclass(frozen=True)
class NoJobs:
    """No job fits now; claim again after this many seconds."""

    retry_after: float


@dataclass
class Grant:
    """The assignments of one claim, and the specs and needs that were read for it, which are cached after the
    commit."""

    assignments: list[Assignment] = field(default_factory=list)
    repeated: bool = False
    #: When the lease clock was read, on the steady clock.
    granted_at: float = 0.0
    #: Whether ready jobs may be left that another worker could run.
    jobs_left: bool = True
    #: If the claim looked at them: the machine of the worker, and the needs of all jobs that were ready.
    offer: MachineOffer | None = None
    ready_needs: list[Needs] = field(default_factory=list)
    #: Whether another coordinator has locked jobs that might fit; it may leave some.
    contended: bool = False
    #: If the worker may not have a job now: after how many seconds it should claim again.
    retry_after: float | None = None
    #: Whether the worker seems to be gone: its claim waits, but its heartbeats are missing.
    silent: bool = False
    waits: list[float] = field(default_factory=list)
    specs: dict[int, CachedSpec] = field(default_factory=dict)
    needs: dict[int, Needs] = field(default_factory=dict)


def claim(
    ctx: Context, actor: Actor, name: str, body: Claim, gone: Callable[[], bool] = lambda: False
) -> Claimed | NoJobs:
    """Jobs for this worker, at once or as soon as one fits, within the time that the worker is willing to wait.

    A repeated request gets its live attempts back, with renewed leases, and never more. While a claim waits, a finish
    may carry the same request id with more free room; the claim then asks for that room. `gone` tells whether the
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
            open_claim.offer = grant.offer or open_claim.offer
            ctx.spec_cache.keep(grant.specs, grant.needs)
            if grant.assignments or grant.repeated:
                ctx.metrics.observe_waits(grant.waits)
                return Claimed(assignments=grant.assignments, waited_seconds=max(0.0, grant.granted_at - arrived))
            left = until - ctx.clock.steady()
            if grant.retry_after is not None:
                return NoJobs(grant.retry_after)
            if grant.silent:
                return NoJobs(0.0)
            if left <= 0 or ctx.wakeups.closed:
                return NoJobs(0.0 if body.wait_seconds else 1.0)
            if not waiting and not ctx.wakeups.take_slot(name):
                return NoJobs(_poll_interval(ctx))
            waiting = True
            ctx.wakeups.wait("jobs", seen, min(left, CONTENDED_SECONDS) if grant.contended else left, open_claim)
    finally:
        ctx.wakeups.close_claim(open_claim)
        if waiting:
            ctx.wakeups.release_slot(name)


def _look(ctx: Context, actor: Actor, name: str, body: Claim, waiting_since: float | None) -> Grant:
    """Take the jobs that fit. A claim that was woken wakes the next claims, unless certainly no job is left."""
    left, needs = True, list[Needs]()

    def take_fitting(work: Work) -> Grant:
        return take(work, check_session(work.tx, name, body.session), body, waiting_since)

    try:
        grant = ctx.work(actor, take_fitting)
        left, needs = grant.jobs_left, grant.ready_needs
        return grant
    finally:
        if waiting_since is not None and left:
            ctx.wakeups.wake_next(needs)


def _poll_interval(ctx: Context) -> float:
    """How often workers without a waiting slot should poll, so that all of them together make `poll_rate` requests per
    second."""
    online = ctx.store.read(workers.count_online)
    polling = max(1, online - ctx.settings.max_waiters)
    return max(1.0, polling / ctx.settings.poll_rate) * random.uniform(0.9, 1.1)


def take(work: Work, worker: WorkerRow, body: NextClaim, waiting_since: float | None = None) -> Grant:
    """Take the jobs that fit, for the newest session of this worker, in one transaction.

    `waiting_since` is the arrival time of a claim that has waited and was woken.
    """
    grant = Grant(granted_at=work.ctx.clock.steady())
    before = attempts.claim_of(work.tx, worker.id, body.request_id)
    if before is not None:
        grant.repeated = True
        _repeat_grant(work, worker.id, before, grant)
        return grant
    grant.retry_after = _retry_after(work, worker)
    if grant.retry_after is not None:
        return grant
    if waiting_since is not None and _is_silent(work, worker, grant.granted_at - waiting_since):
        grant.silent = True
        return grant
    picking = Picking(work, worker, body, grant.specs, grant.needs)
    picked, grant.contended = picking.pick(), picking.contended
    grant.offer, grant.ready_needs = machine(worker), list(picking.seen.values())
    if picked:
        _grant(work, worker, body.request_id, picked, grant)
    if waiting_since is not None:
        grant.jobs_left = jobs.any_ready(work.tx)
    return grant


def _retry_after(work: Work, worker: WorkerRow) -> float | None:
    """If the worker may not have a job now, after how many seconds it should claim again; None if it may have one.

    After too many infrastructure failures in a row, it gets one job at a time, with pauses.
    """
    if worker.paused or worker.drain or worker.state not in WORKING:
        return NOT_WORKING_RETRY_SECONDS
    if worker.rest_clock > work.clock:
        return min(NOT_WORKING_RETRY_SECONDS, max(1.0, worker.rest_clock - work.clock))
    if on_probation(worker.failures) and attempts.names_held_by(work.tx, worker.id):
        return NOT_WORKING_RETRY_SECONDS
    return None


def _is_silent(work: Work, worker: WorkerRow, waited: float) -> bool:
    """Whether a waiting worker has missed two heartbeats. A job would stay with it until its lease expires.

    A connection may look alive long after the worker's machine is gone. If the worker is alive after all, it claims
    again.
    """
    settings = work.ctx.settings
    patience = 2 * settings.heartbeat_seconds + lease_check_interval(settings.lease_seconds)
    return waited > patience and work.clock - worker.seen_clock > patience


def _repeat_grant(work: Work, worker_id: int, claim_id: int, grant: Grant) -> None:
    """Return the live attempts that an earlier request with the same id was granted, with renewed leases."""
    attempts.renew_claim(work.tx, worker_id, claim_id, work.lease_end)
    picked = [Picked(*row) for row in attempts.live_of_claim(work.tx, worker_id, claim_id)]
    grant.assignments = assign(work, picked, find_owners(work.tx, picked), grant.specs)


def _grant(work: Work, worker: WorkerRow, request_id: str, picked: list[Picked], grant: Grant) -> None:
    """Start the picked jobs, each with an attempt and a lease. What makes the answer too large stays queued."""
    owners = find_owners(work.tx, picked)
    grant.assignments = assign(work, picked, owners, grant.specs, CLAIM_BYTES)
    picked = picked[: len(grant.assignments)]
    claim_id = attempts.new_claim(work.tx, worker.id, request_id, work.now)
    traces = {run: owner.traceparent for run, owner in owners.items() if owner.traceparent}
    work.start([(each.job, each.number) for each in picked], worker, expiry(work), traces)
    clock, lease_end, now = work.clock, work.lease_end, work.now
    rows = []
    for each, assignment in zip(picked, grant.assignments, strict=True):
        limit = deadline(clock, assignment.timeout_seconds)
        rows.append((each.job, each.number, worker.id, worker.session, claim_id, clock, limit, lease_end, now))
        made_at = rounds.created_at(work.tx, each.job) if assignment.round is not None else None
        grant.waits.append(now - (made_at or owners[ids.run_of(each.job)].created_at))
    attempts.grant(work.tx, rows)
    for each, assignment in zip(picked, grant.assignments, strict=True):
        if (last := assignment.checkpoint) is not None:
            _, saved_by = ids.parse_attempt(last.attempt)
            checkpoints.note_restored(work.tx, each.job, each.number, saved_by, last.number)
