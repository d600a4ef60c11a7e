"""Register a worker. It describes itself and names the attempts that it still holds, which its new session adopts."""

from __future__ import annotations

import json

import msgspec

from deborgen_shared.messages import Register, Registered
from deborgen_shared.states import Outcome

from ... import ids
from ...storage import attempts, images, workers
from ...storage.rows import WorkerRow
from ..attempts.failures import MachineOutcome, count_failures
from ..attempts.outcomes import give_up, may_resume
from ..context import Actor, Context
from ..lookup import find_worker
from ..work import About, Work
from .sessions import check_identity, superseded


def register(ctx: Context, actor: Actor, name: str, body: Register) -> Registered:
    """Register the worker. Attempts that an earlier session held and this one does not name are lost.

    A repeated registration gets the same answer, and changes none of the worker's attempts.
    """
    check_identity(actor, name)
    lost = ctx.work(actor, lambda work: _register(work, name, body))
    settings = ctx.settings
    return Registered(lease_seconds=settings.lease_seconds, heartbeat_seconds=settings.heartbeat_seconds, lost=lost)


def _register(work: Work, name: str, body: Register) -> list[str]:
    tx = work.tx
    before = workers.get(tx, name, lock=True)
    # The answer to an earlier copy of this request; None if there was none.
    answered = workers.lost_by_session(tx, before.id, body.session) if before else None
    if before and answered is not None and before.session != body.session:
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
    images.set_places(tx, worker.id, body.images)
    if before is None:  # another process may have just registered the same session
        answered = workers.lost_by_session(tx, worker.id, body.session)
    if answered is not None:
        return answered
    about = About(worker=name)
    work.record("worker.registered", about, data={"hostname": body.hostname, "version": body.version})
    if before is None or not before.online:
        work.record("worker.online", about)
    lost = _adopt(work, worker, body)
    workers.add_session(tx, worker.id, body.session, lost, work.now)
    return lost


def _adopt(work: Work, worker: WorkerRow, body: Register) -> list[str]:
    """Assign the attempts that the worker still holds to its new session, and end its other attempts.

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
            gone.append(msgspec.structs.replace(attempt, named=attempt.named or key in reported_gone))
    for key in sorted(held - set(live)):
        found = attempts.get(work.tx, *key)
        if found and may_resume(found, worker.id, found.session):
            work.resume(found, body.session)
    lost = give_up(work, gone, f"worker {worker.name} restarted without it")
    count_failures(work, worker, [MachineOutcome(held, Outcome.LOST) for held in lost[:1]])
    return [ids.attempt_name(attempt.job, attempt.number) for attempt in gone]
