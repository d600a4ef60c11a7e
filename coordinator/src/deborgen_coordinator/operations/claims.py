"""Claiming: picking jobs, marking them running, creating the attempts and their leases, in one atomic step."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from deborgen_shared.jobfile.template import render
from deborgen_shared.messages import Assignment, Claim, Claimed, Input, NextClaim
from deborgen_shared.states import WORKING

from .. import ids
from ..leases import deadline, lease_end, sweep_interval
from ..placement import Amounts, Head, Machine, Needs, choose, lacks
from ..storage import attempts, blobs, jobs, runs, specs, workers
from ..storage.rows import RunRow, StepRow, WorkerRow
from ..storage.transactions import Tx
from .catalog import Spec
from .context import Actor, Context
from .fleet import machine
from .sessions import check_identity, check_session
from .transitions import Changes, settle, start, write

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

    def work(tx: Tx) -> Given:
        return take(ctx, tx, actor, check_session(tx, name, body.session), body, waiting_since)

    try:
        given = write(ctx, work)
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


def take(
    ctx: Context, tx: Tx, actor: Actor, worker: WorkerRow, body: NextClaim, waiting_since: float | None = None
) -> Given:
    """What fits, for the newest session of this worker, in one transaction.

    `waiting_since` is when a claim arrived that has waited and was woken.
    """
    now = ctx.clock.wall()
    given = Given(granted_at=ctx.clock.steady())
    clock = workers.clock(tx)
    before = attempts.claim_of(tx, worker.id, body.request_id)
    if before is not None:
        given.asked_before = True
        _give_again(ctx, tx, before, clock, now, given)
        return given
    if worker.paused or worker.drain or worker.state not in WORKING or worker.rest_clock > clock:
        given.idle = True
        return given
    if waiting_since is not None and _silent(ctx, worker, clock, given.granted_at - waiting_since):
        given.silent = True
        return given
    picked = _pick(ctx, tx, worker, body, clock, given)
    if picked:
        _grant(ctx, tx, actor, worker, body, picked, clock, now, given)
    if waiting_since is not None:
        given.left = jobs.any_ready(tx)
    return given


def _silent(ctx: Context, worker: WorkerRow, clock: float, waited: float) -> bool:
    """Whether two heartbeats of a waiting worker are missing: a job would lie with it until its lease is over.

    Its connection may look alive for a long time after its machine has gone. If it is there after all, it asks again.
    """
    patience = 2 * ctx.settings.heartbeat_seconds + sweep_interval(ctx.settings.lease_seconds)
    return waited > patience and clock - worker.seen_clock > patience


def _give_again(ctx: Context, tx: Tx, claim_id: int, clock: float, now: float, given: Given) -> None:
    """What an earlier request of the same id was given and still lives, with full leases again."""
    attempts.renew_claim(tx, claim_id, lease_end(clock, ctx.settings.lease_seconds))
    expires = _when(now + ctx.settings.lease_seconds)
    for job, number, step, spec_id, params in attempts.of_claim(tx, claim_id):
        assignment = _assignment(ctx, tx, given, {}, job, number, step, spec_id, params)
        assignment.lease_expires_at = expires
        given.assignments.append(assignment)


def _when(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


Picked = tuple[int, int, int, str, int]
"""A job that was chosen: id, step, spec, params, number of its new attempt."""


def _pick(ctx: Context, tx: Tx, worker: WorkerRow, body: NextClaim, clock: float, given: Given) -> list[Picked]:
    heads = jobs.heads(tx)
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
            details[job] = (job, step, spec_id, params, last + 1)
        return [(row[0], row[1]) for row in rows]

    free = Amounts(
        min(body.free.cpus, this.capacity.cpus),
        min(body.free.memory, this.capacity.memory),
        min(body.free.gpus, this.capacity.gpus),
        body.free.disk or None,
    )
    chosen = choose(
        open_heads,
        most=body.max,
        free=free,
        needs_of=needs_of,
        fetch=fetch,
        used=_used(tx, clock, needs_of) if ctx.settings.scheduler == "fair" else None,
        room=_room(ctx, tx, open_heads),
        ahead=body.ahead,
    )
    return [details[job] for job, _ in chosen]


def _used(tx: Tx, clock: float, needs_of: Any) -> dict[int, float]:
    used, running = attempts.usage(tx, clock)
    for submitter, class_id, seconds in running:
        cpus = max(needs_of(class_id).resources.cpus, 0.001)
        used[submitter] = used.get(submitter, 0.0) + float(seconds) * cpus
    return used


def _room(ctx: Context, tx: Tx, heads: list[Head]) -> dict[int, int]:
    most = ctx.settings.max_running_per_submitter
    if not most:
        return {}
    running = jobs.running_of(tx)
    return {head.submitter: most - running.get(head.submitter, 0) for head in heads}


def _grant(
    ctx: Context,
    tx: Tx,
    actor: Actor,
    worker: WorkerRow,
    body: NextClaim,
    picked: list[Picked],
    clock: float,
    now: float,
    given: Given,
) -> None:
    claim_id = attempts.new_claim(tx, worker.id, body.request_id, now)
    changes = Changes()
    expires = _when(now + ctx.settings.lease_seconds)
    names = [(job, number) for job, *_, number in picked]
    start(tx, changes, actor, names, worker.id, worker.name, now, expires)
    lease_clock = lease_end(clock, ctx.settings.lease_seconds)
    rows = []
    owners = runs.get_briefs(tx, {ids.run_of(job) for job, *_ in picked})
    for job, step, spec_id, params, number in picked:
        assignment = _assignment(ctx, tx, given, owners, job, number, step, spec_id, params)
        assignment.lease_expires_at = expires
        given.assignments.append(assignment)
        ends = deadline(clock, assignment.timeout_seconds)
        rows.append((job, number, worker.id, worker.session, claim_id, clock, ends, lease_clock, now))
        given.waits.append(now - owners[ids.run_of(job)].created_at)
    attempts.grant(tx, rows)
    settle(tx, changes, actor, now)


def _assignment(
    ctx: Context,
    tx: Tx,
    given: Given,
    owners: dict[int, RunRow],
    job: int,
    number: int,
    step: int,
    spec_id: int,
    params: str,
) -> Assignment:
    run = ids.run_of(job)
    if run not in owners:
        owners[run] = runs.get_brief(tx, run)
    owner = owners[run]
    spec = given.specs.get(spec_id)
    if spec is None:
        spec = given.specs[spec_id] = ctx.catalog.spec(tx, spec_id)
    values = _decode(params)
    body: Any = spec.raw
    if spec.plain is not None:
        context = {
            "run.id": str(run),
            "job.id": ids.name(job),
            "job.index": str(ids.index_of(job)),
            "attempt": str(number),
        }
        body = render(spec.plain, values, context)
    return Assignment(
        attempt=ids.attempt_name(job, number),
        job=ids.name(job),
        number=number,
        spec=body,
        params=values,
        inputs=_inputs(tx, owner, step) if owner.steps > 1 or owner.retry_of is not None else [],
        secrets={},
        timeout_seconds=spec.job.timeout,
        lease_seconds=ctx.settings.lease_seconds,
        name=spec.job.name,
        submitter=owner.submitter,
    )


def _inputs(tx: Tx, owner: RunRow, number: int) -> list[Input]:
    """What the steps that this one needs have left. Of a step that was not retried, the run before has it."""
    steps = {step.number: step for step in specs.steps(tx, owner.id)}
    found: list[Input] = []
    for need in steps[number].needs:
        by_index: dict[tuple[int, str], Input] = {}
        again: set[int] = set()
        lineage: RunRow | None = owner
        swept = False
        while lineage is not None:
            for step in specs.steps(tx, lineage.id):
                if step.name == need:
                    swept = swept or step.last_index > step.first_index
                    _collect(tx, step, by_index, again)
            lineage = runs.get_brief(tx, lineage.retry_of) if lineage.retry_of is not None else None
        for (index, path), made in sorted(by_index.items()):
            made.target = f"inputs/{need}/{index}/{path}" if swept else f"inputs/{need}/{path}"
            found.append(made)
    return found


def _collect(tx: Tx, step: StepRow, by_index: dict[tuple[int, str], Input], again: set[int]) -> None:
    """What the jobs of a step left, except those that a later run has tried `again`: their old files count no more."""
    first, last = ids.key(step.run, step.first_index), ids.key(step.run, step.last_index)
    for job, path, digest, size in blobs.artifacts_of_span(tx, first, last):
        index = ids.index_of(job)
        if index not in again:
            made = Input(step=step.name or "", job=ids.name(job), path=path, target="", sha256=digest, size=size)
            by_index[index, path] = made
    again.update(ids.index_of(job) for job in jobs.in_span(tx, first, last))
