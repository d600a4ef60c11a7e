"""Who may act for a worker: a worker's token is bound to its name, and only its newest session counts.

So only the session that holds an attempt's lease can add to the attempt's log and events.
"""

from __future__ import annotations

from dataclasses import dataclass

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import Role, WorkerState

from ... import ids
from ...storage import attempts, workers
from ...storage.rows import HeldAttempt, WorkerRow
from ...storage.transactions import Tx
from ..attempts.outcomes import note_stale
from ..context import Actor, Context
from ..lookup import MOST_RUNS, Noun, UnknownName
from ..work import Work


@dataclass(frozen=True, slots=True)
class AttemptId:
    """An attempt as its worker names it: 42.7/2."""

    run: int
    index: int
    number: int

    def __str__(self) -> str:
        return f"{self.run}.{self.index}/{self.number}"

    def find(self, tx: Tx) -> HeldAttempt | None:
        if self.run >= MOST_RUNS or self.index > ids.MOST_JOBS:
            return None
        return attempts.get(tx, ids.key(self.run, self.index), self.number)


def check_identity(actor: Actor, name: str) -> None:
    if actor.role is not Role.WORKER or actor.name != name:
        raise Refusal(
            Code.FORBIDDEN,
            f"this token does not belong to worker {name}",
            f"use the token that was created with --role worker --name {name}",
        )


def check_session(tx: Tx, name: str, session: str) -> WorkerRow:
    """The worker, locked against other writers. A session that is not its newest is refused."""
    worker = workers.get(tx, name, lock=True)
    if worker is None or worker.state is WorkerState.LEFT:
        raise Refusal(Code.SUPERSEDED, f"worker {name} is not registered")
    if worker.session != session:
        raise superseded(name)
    return worker


def superseded(name: str) -> Refusal:
    return Refusal(Code.SUPERSEDED, f"a newer session of worker {name} has registered", "stop this one")


def find_own_attempt(work: Work, attempt: AttemptId, session: str) -> HeldAttempt:
    """The attempt. It is refused unless it belongs to the worker that asks and the session is the worker's newest.

    Every lease belongs to the newest session, because a registration adopts or ends each lease.
    """
    held = attempt.find(work.tx)
    if held is None:
        raise UnknownName(Noun.ATTEMPT, f"there is no attempt {attempt}")
    check_identity(work.actor, held.worker)
    check_session(work.tx, held.worker, session)
    return held


def refuse_stale(ctx: Context, actor: Actor, attempt: AttemptId, what: str) -> Refusal:
    """The refusal of log bytes or events for an attempt that has ended. The history records the first of them."""

    def note(work: Work) -> None:
        held = attempt.find(work.tx)
        if held is not None and not held.stale:
            note_stale(work, held, {"what": what})

    ctx.work(actor, note)
    return Refusal(Code.STALE_ATTEMPT, f"attempt {attempt} has ended", "stop it, and send nothing more for it")
