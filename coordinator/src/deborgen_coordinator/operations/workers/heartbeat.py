"""Heartbeats: they renew a worker's leases, report its state, and return the coordinator's orders."""

from __future__ import annotations

import msgspec

from deborgen_shared import messages as m
from deborgen_shared.messages import Heartbeat, HeartbeatAnswer, Orders
from deborgen_shared.states import WORKING, LeaseAnswer, WorkerState

from ... import ids
from ...leases import deadline
from ...placement import Needs
from ...storage import attempts, images, jobs, workers
from ...storage.rows import HeldAttempt, WorkerRow
from ..attempts.failures import subjects_of_job
from ..attempts.outcomes import may_resume, note_stale
from ..context import Actor, Context
from ..work import About, Work
from .sessions import check_identity, check_session


def heartbeat(ctx: Context, actor: Actor, name: str, body: Heartbeat) -> HeartbeatAnswer:
    """Renew the worker's leases, and answer with the order for each attempt."""
    check_identity(actor, name)
    return ctx.work(actor, lambda work: _renew(work, check_session(work.tx, name, body.session), body))


def _renew(work: Work, worker: WorkerRow, body: Heartbeat) -> HeartbeatAnswer:
    _note_state(work, worker, body)
    live = {(a.job, a.number): a for a in attempts.held_by(work.tx, worker.id) if a.session == body.session}
    answer = HeartbeatAnswer(attempts={}, orders=Orders(pause=worker.paused, drain=worker.drain))
    renewed: list[tuple[int, int, float | None, float]] = []
    progress: list[tuple[float | None, str, int]] = []
    frozen: dict[str, HeldAttempt] = {}
    for held in body.holding:
        key = ids.parse_attempt(held.attempt)
        attempt = live.get(key) or _revive(work, worker, key, body.session)
        if attempt is None:
            answer.attempts[held.attempt] = LeaseAnswer.STOP
            continue
        began_at = work.note_program_start(attempt, held.began_seconds_ago)
        renewed.append((*key, began_at, _deadline(work, attempt, held)))
        answer.attempts[held.attempt] = LeaseAnswer.CANCEL if attempt.cancel_requested else LeaseAnswer.CONTINUE
        if held.standing == m.FROZEN:
            frozen[held.attempt] = attempt
        if held.progress is not None or held.message:
            progress.append((held.progress, held.message, attempt.job))
    attempts.renew(work.tx, renewed, worker.id, body.session, work.lease_end)
    if progress:
        jobs.set_progress(work.tx, progress)
    if frozen:
        answer.wanted = _wanted(work, worker, frozen)
    return answer


def _wanted(work: Work, worker: WorkerRow, frozen: dict[str, HeldAttempt]) -> list[str]:
    """The attempts whose jobs other machines have room for now."""
    found: dict[str, tuple[Needs, set[str]]] = {}
    for name, attempt in frozen.items():
        spec = work.ctx.spec_cache.spec(work.tx, attempt.spec_id)
        row = jobs.get(work.tx, attempt.job)
        if row is not None and not attempt.cancel_requested:
            subjects = subjects_of_job(attempt.spec_id, spec.job, row.params)
            found[name] = work.ctx.spec_cache.needs(work.tx, spec.class_id), subjects
    return work.ctx.worker_fit.others_have_room(found, worker.name)


def _deadline(work: Work, attempt: HeldAttempt, held: m.Held) -> float:
    """When the attempt reaches its time limit, according to this heartbeat."""
    timeout = work.ctx.spec_cache.spec(work.tx, attempt.spec_id).job.timeout
    if held.began_seconds_ago is None:
        return deadline(attempt.granted_clock, timeout)
    return deadline(work.clock, timeout, max(0.0, held.began_seconds_ago - held.stopped_seconds))


def _note_state(work: Work, worker: WorkerRow, body: Heartbeat) -> None:
    workers.record_heartbeat(
        work.tx,
        worker.id,
        state=WorkerState(body.state),
        reason=body.reason,
        until=body.until.timestamp() if body.until is not None else None,
        free=msgspec.json.encode(body.free).decode() if body.free is not None else worker.free,
        metrics=None if body.metrics is None else msgspec.json.encode(body.metrics).decode(),
        seen_clock=work.clock,
        now=work.now,
    )
    if body.images is not None:
        images.set_places(work.tx, worker.id, body.images)
    about = About(worker=worker.name)
    if not worker.online:
        work.record("worker.online", about)
    if body.state in WORKING:
        if worker.state not in WORKING:
            work.record("worker.resumed", about)
    elif worker.state != body.state:
        work.record("worker.paused", about, data={"state": body.state, "reason": body.reason})


def _revive(work: Work, worker: WorkerRow, key: tuple[int, int], session: str) -> HeldAttempt | None:
    """Resume an attempt that was given up if nobody has claimed its job since; otherwise note that it is stale."""
    held = attempts.get(work.tx, *key)
    if held is None:
        return None
    if may_resume(held, worker.id, session):
        work.resume(held, session)
        return held
    if not held.stale and held.worker_id == worker.id:
        note_stale(work, held, {"what": "heartbeat"})
    return None
