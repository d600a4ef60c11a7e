"""Who speaks for a worker: the token is bound to its name, and the newest session is the only one."""

from __future__ import annotations

from deborgen_shared import contract
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import Role, WorkerState

from ..storage import workers
from ..storage.rows import WorkerRow
from ..storage.transactions import Tx
from .context import Actor


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
