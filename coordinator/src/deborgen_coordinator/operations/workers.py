"""Workers: they register, beat, leave, and are looked at and steered. Claims and results have rooms of their own."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec

from deborgen_shared import messages as m
from deborgen_shared.messages import (
    Heartbeat,
    HeartbeatAnswer,
    Metrics,
    Orders,
    Register,
    Registered,
    Resources,
    SteerWorker,
    Worker,
    Workers,
)
from deborgen_shared.states import FIRST_WORDS, WORKING, Outcome, WorkerState

from .. import ids
from ..leases import deadline, lease_end
from ..storage import attempts, jobs, workers
from ..storage.database import Connection
from ..storage.rows import Held, WorkerRow
from ..storage.transactions import Tx
from . import views
from .claims import NoWork, claim
from .context import Actor, Context
from .endings import count_failures, give_up, may_resume
from .finish import finish
from .history import record
from .lookup import find_worker
from .sessions import check_identity, check_session, superseded
from .standing import availability, standing
from .transitions import Changes, begin, resume, settle, write

__all__ = [
    "NoWork",
    "claim",
    "finish",
    "get_worker",
    "heartbeat",
    "leave",
    "list_workers",
    "register",
    "steer",
]


def register(ctx: Context, actor: Actor, name: str, body: Register) -> Registered:
    """A worker says who it is and what it still holds. What an earlier session held and this one does not is lost.

    A repeat of the same registration changes nothing that it holds, and gets the same answer.
    """
    check_identity(actor, name)
    now = ctx.clock.wall()

    def work(tx: Tx) -> list[str]:
        before = workers.get(tx, name, lock=True)
        clock = workers.clock(tx)
        again = workers.session(tx, before.id, body.session) if before else None
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
            metrics=_encoded(body.metrics),
            seen_clock=clock,
            now=now,
        )
        worker = find_worker(tx, name)
        if before is None:  # another process may have registered the same session a moment ago
            again = workers.session(tx, worker.id, body.session)
        if again is not None:
            return again
        record(
            tx, now, "worker.registered", actor, worker=name, data={"hostname": body.hostname, "version": body.version}
        )
        if before is None or not before.online:
            record(tx, now, "worker.online", actor, worker=name)
        lost = _take_over(ctx, tx, actor, worker, body, clock, now)
        workers.add_session(tx, worker.id, body.session, lost, now)
        return lost

    lost = write(ctx, work)
    settings = ctx.settings
    return Registered(lease_seconds=settings.lease_seconds, heartbeat_seconds=settings.heartbeat_seconds, lost=lost)


def _take_over(
    ctx: Context, tx: Tx, actor: Actor, worker: WorkerRow, body: Register, clock: float, now: float
) -> list[str]:
    """Hand what the new session holds over to it, and end the rest."""
    held = {ids.parse_attempt(text) for text in body.holding}
    live = attempts.live_of(tx, worker.id)
    lease_clock = lease_end(clock, ctx.settings.lease_seconds)
    changes = Changes()
    for attempt in live:
        if (attempt.job, attempt.number) in held:
            attempts.adopt(tx, attempt.job, attempt.number, body.session, lease_clock)
    for job, number in sorted(held - {(attempt.job, attempt.number) for attempt in live}):
        found = attempts.get(tx, job, number)
        if found and may_resume(found, worker.id, found.session):
            resume(tx, changes, actor, found, body.session, lease_clock, now)
    said_gone = {ids.parse_attempt(text) for text in body.gone}
    gone = [
        replace(attempt, named=attempt.named or (attempt.job, attempt.number) in said_gone)
        for attempt in live
        if (attempt.job, attempt.number) not in held
    ]
    reason = f"worker {worker.name} restarted without it"
    lost = give_up(ctx, tx, changes, actor, gone, reason=reason, now=now, clock=clock)
    if lost:
        count_failures(tx, actor, worker, [Outcome.LOST], clock, now)
    settle(tx, changes, actor, now)
    return [ids.attempt_name(attempt.job, attempt.number) for attempt in gone]


def heartbeat(ctx: Context, actor: Actor, name: str, body: Heartbeat) -> HeartbeatAnswer:
    """Renew the leases of what the worker holds, and tell it what to do."""
    check_identity(actor, name)
    now = ctx.clock.wall()

    def work(tx: Tx) -> HeartbeatAnswer:
        worker = check_session(tx, name, body.session)
        clock = workers.clock(tx)
        _note_state(tx, actor, worker, body, clock, now)
        live = {(a.job, a.number): a for a in attempts.live_of(tx, worker.id) if a.session == body.session}
        answers: dict[str, str] = {}
        renewed: list[tuple[int, int, float | None, float]] = []
        progress: list[tuple[float | None, str, int]] = []
        lease_clock = lease_end(clock, ctx.settings.lease_seconds)
        changes = Changes()
        for held in body.holding:
            key = ids.parse_attempt(held.attempt)
            attempt = live.get(key) or _revive(tx, changes, actor, worker, key, body.session, lease_clock, now)
            if attempt is None:
                answers[held.attempt] = "stop"
                continue
            began_at = begin(tx, actor, attempt, held.began_seconds_ago, now)
            renewed.append((*key, began_at, _deadline(ctx, tx, attempt, held, clock)))
            answers[held.attempt] = "cancel" if attempt.cancel_requested else "continue"
            if held.progress is not None or held.message:
                progress.append((held.progress, held.message, attempt.job))
        attempts.renew(tx, renewed, worker.id, body.session, lease_clock)
        if progress:
            jobs.set_progress(tx, progress)
        settle(tx, changes, actor, now)
        return HeartbeatAnswer(attempts=answers, orders=Orders(pause=worker.paused, drain=worker.drain))  # type: ignore[arg-type]

    return write(ctx, work)


def _deadline(ctx: Context, tx: Tx, attempt: Held, held: m.Held, clock: float) -> float:
    """When the attempt has used up its time, by what its worker says of it now."""
    timeout = ctx.catalog.spec(tx, attempt.spec_id).job.timeout
    if held.began_seconds_ago is None:
        return deadline(attempt.granted_clock, timeout)
    return deadline(clock, timeout, max(0.0, held.began_seconds_ago - held.stopped_seconds))


def _note_state(tx: Tx, actor: Actor, worker: WorkerRow, body: Heartbeat, clock: float, now: float) -> None:
    free = msgspec.json.encode(body.free).decode() if body.free is not None else worker.free
    until = body.until.timestamp() if body.until is not None else None
    workers.seen(
        tx,
        worker.id,
        state=WorkerState(body.state),
        reason=body.reason,
        until=until,
        free=free,
        metrics=_encoded(body.metrics),
        seen_clock=clock,
        now=now,
    )
    if not worker.online:
        record(tx, now, "worker.online", actor, worker=worker.name)
    if body.state in WORKING:
        if worker.state not in WORKING:
            record(tx, now, "worker.resumed", actor, worker=worker.name)
    elif worker.state != body.state:
        data = {"state": body.state, "reason": body.reason}
        record(tx, now, "worker.paused", actor, worker=worker.name, data=data)


def _encoded(metrics: Metrics | None) -> str | None:
    return None if metrics is None else msgspec.json.encode(metrics).decode()


def _revive(
    tx: Tx,
    changes: Changes,
    actor: Actor,
    worker: WorkerRow,
    key: tuple[int, int],
    session: str,
    lease_clock: float,
    now: float,
) -> Held | None:
    """An attempt that is not live: taken up again if nobody has claimed the job since, otherwise stale."""
    held = attempts.get(tx, *key)
    if held is None:
        return None
    if may_resume(held, worker.id, session):
        resume(tx, changes, actor, held, session, lease_clock, now)
        return held
    if not held.stale and held.worker_id == worker.id:
        attempts.mark_stale(tx, *key)
        record(
            tx, now, "result.stale", actor, job=held.job, attempt=held.number, worker=worker.name,
            data={"what": "heartbeat"},
        )  # fmt: skip
    return None


def leave(ctx: Context, actor: Actor, name: str, session: str | None = None) -> None:
    """The worker says goodbye: what it held is released, and nobody loses an attempt.

    With a session, only the newest one can say it: an older twin releases nothing of a newer one's.
    """
    check_identity(actor, name)
    now = ctx.clock.wall()

    def work(tx: Tx) -> None:
        worker = find_worker(tx, name, lock=True)
        if worker.state is WorkerState.LEFT:
            return
        if session is not None and session != worker.session:
            raise superseded(name)
        release_all(ctx, tx, actor, worker, f"worker {name} left", now)
        workers.leave(tx, worker.id, "left the pool")
        record(tx, now, "worker.left", actor, worker=name)

    write(ctx, work)


def release_all(ctx: Context, tx: Tx, actor: Actor, worker: WorkerRow, reason: str, now: float) -> None:
    changes = Changes()
    held = attempts.live_of(tx, worker.id)
    give_up(ctx, tx, changes, actor, held, reason=reason, now=now, clock=workers.clock(tx), release=True)
    settle(tx, changes, actor, now)


def steer(ctx: Context, actor: Actor, name: str, body: SteerWorker) -> Worker:
    """Pause or drain a worker from the coordinator's side; it learns of it with its next heartbeat."""
    now = ctx.clock.wall()

    def work(tx: Tx) -> None:
        worker = find_worker(tx, name, lock=True)
        paused = worker.paused if body.paused is msgspec.UNSET else bool(body.paused)
        drain = worker.drain if body.drain is msgspec.UNSET else bool(body.drain)
        workers.steer(tx, worker.id, paused=paused, drain=drain)
        if (paused or drain) and not (worker.paused or worker.drain):
            record(tx, now, "worker.paused", actor, worker=name, data={"paused": paused, "drain": drain})
        elif not (paused or drain) and (worker.paused or worker.drain):
            record(tx, now, "worker.resumed", actor, worker=name)
            tx.wake("jobs")

    ctx.store.write(work)
    return get_worker(ctx, name)


def _show(reader: Connection, worker: WorkerRow, clock: float) -> Worker:
    state, reason = standing(worker, clock)
    capacity = msgspec.json.decode(worker.capacity, type=Resources)
    free = msgspec.json.decode(worker.free, type=Resources)
    return Worker(
        name=worker.name,
        state=FIRST_WORDS.get(state, state),
        reason=reason,
        hostname=worker.hostname,
        version=worker.version,
        labels=views.loads(worker.labels),
        capacity=capacity,
        free=free,
        running=[ids.attempt_name(*held) for held in attempts.held_names(reader, worker.id)],
        last_seen_at=views.when(worker.seen_at),
        paused=worker.paused,
        drain=worker.drain,
        availability=availability(state, capacity, free),
        until=views.maybe_when(worker.until_at) if state is worker.state else None,
        metrics=msgspec.json.decode(worker.metrics, type=Metrics) if worker.metrics else None,
    )


def list_workers(ctx: Context) -> Workers:
    def look(reader: Connection) -> list[Worker]:
        clock = workers.clock(reader)
        return [_show(reader, worker, clock) for worker in workers.every(reader)]

    return Workers(items=ctx.store.read(look), next=None)


def get_worker(ctx: Context, name: str) -> Worker:
    return ctx.store.read(lambda reader: _show(reader, find_worker(reader, name), workers.clock(reader)))
