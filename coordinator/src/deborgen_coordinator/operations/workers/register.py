"""Register a worker. It describes itself and names the attempts that it still holds, which its new session adopts."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec

from deborgen_shared.messages import Register, Registered
from deborgen_shared.states import Outcome

from ... import ids
from ...storage import attempts, workers
from ...storage.rows import WorkerRow
from ..attempts.outcomes import count_failures, give_up, may_resume
from ..context import Actor, Context
from ..lookup import find_worker
from ..work import About, Work
from .sessions import check_identity, superseded


def register(ctx: Context, actor: Actor, name: str, body: Register) -> Registered:
    """Register the worker. If an earlier session held an attempt and this session does not, the attempt is lost.

    A repeated registration gets the same answer, and changes none of the worker's attempts.
    """
    check_identity(actor, name)
    lost = ctx.work(actor, lambda work: _register(work, name, body))
    settings = ctx.settings
    return Registered(lease_seconds=settings.lease_seconds, heartbeat_seconds=settings.heartbeat_seconds, lost=lost)


def _register(work: Work, name: str, body: Register) -> list[str]:
    tx = work.tx
    before = workers.get(tx, name, lock=True)
    again = workers.lost_by_session(tx, before.id, body.session) if before else None
    if before and again is not None and before.session != body.session:
        raise superseded(name)
    workers.save(
        tx,
        name,
        session=body.session,
        hostname=body.hostname,
        version=body.version,
        labels=json.dumps(body.labels),
        capacity=msgspec.json.encode(body.capacity).decode(),
        metrics=None if body.metrics is None else msgspec.json.encode(body.metrics).decode(),
        seen_clock=work.clock,
        now=work.now,
    )
    worker = find_worker(tx, name)
    if before is None:  # another process may have just registered the same session
        again = workers.lost_by_session(tx, worker.id, body.session)
    if again is not None:
        return again
    about = About(worker=name)
    work.record("worker.registered", about, data={"hostname": body.hostname, "version": body.version})
    if before is None or not before.online:
        work.record("worker.online", about)
    lost = _adopt(work, worker, body)
    workers.add_session(tx, worker.id, body.session, lost, work.now)
    return lost


def _adopt(work: Work, worker: WorkerRow, body: Register) -> list[str]:
    """Assign the attempts that the worker still holds to its new session, and end its others.

    An attempt that was given up too early is resumed if possible. Returns the names of the ended attempts.
    """
    held = {ids.parse_attempt(text) for text in body.holding}
    reported_gone = {ids.parse_attempt(text) for text in body.gone}
    live = {(attempt.job, attempt.number): attempt for attempt in attempts.held_by(work.tx, worker.id)}
    gone = []
    for key, attempt in live.items():
        if key in held:
            attempts.adopt(work.tx, *key, body.session, work.lease_end)
        else:
            gone.append(replace(attempt, named=attempt.named or key in reported_gone))
    for key in sorted(held - set(live)):
        found = attempts.get(work.tx, *key)
        if found and may_resume(found, worker.id, found.session):
            work.resume(found, body.session)
    if give_up(work, gone, f"worker {worker.name} restarted without it"):
        count_failures(work, worker, [Outcome.LOST])
    return [ids.attempt_name(attempt.job, attempt.number) for attempt in gone]
