"""Who speaks for a worker: the token is bound to its name, and the newest session is the only one.

So only the worker and the session that hold the lease of an attempt add to what it wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

from deborgen_shared import contract
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import Role, WorkerState

from ... import ids
from ...storage import attempts, workers
from ...storage.rows import HeldAttempt, WorkerRow
from ...storage.transactions import Tx
from ..attempts.outcomes import note_stale
from ..context import Actor, Context
from ..lookup import MOST_RUNS
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
            f"this token is not worker {name}'s",
            f"use the token that was made with --role worker --name {name}",
        )


def check_session(tx: Tx, name: str, session: str) -> WorkerRow:
    """The worker, if this session is its newest; kept from other writers."""
    worker = workers.get(tx, name, lock=True)
    if worker is None or worker.state is WorkerState.LEFT:
        hint = f"PUT {contract.REGISTER.url(name=name)} first"
        raise Refusal(Code.SUPERSEDED, f"worker {name} is not registered", hint)
    if worker.session != session:
        raise superseded(name)
    return worker


def superseded(name: str) -> Refusal:
    return Refusal(
        Code.SUPERSEDED, f"a newer session of worker {name} has registered", "stop: this one no longer speaks for it"
    )


def find_own_attempt(work: Work, attempt: AttemptId, session: str) -> HeldAttempt:
    """The attempt, if it is this worker's and the session is the worker's newest.

    A lease is always the newest session's: a registration takes it over or ends it.
    """
    held = attempt.find(work.tx)
    if held is None:
        raise Refusal(Code.NOT_FOUND, f"there is no attempt {attempt}")
    check_identity(work.actor, held.worker)
    check_session(work.tx, held.worker, session)
    return held


def refuse_stale(ctx: Context, actor: Actor, attempt: AttemptId, what: str) -> Refusal:
    """The refusal of something that came for an attempt that is over. The history tells of the first one."""

    def note(work: Work) -> None:
        held = attempt.find(work.tx)
        if held is not None and not held.stale:
            note_stale(work, held, {"what": what})

    ctx.work(actor, note)
    return Refusal(Code.STALE_ATTEMPT, f"attempt {attempt} is over", "stop it, and send nothing more of it")
