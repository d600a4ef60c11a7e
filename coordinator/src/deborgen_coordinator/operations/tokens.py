"""Tokens: `dbg_ROLE_ID_SECRET`. The secret is shown once; only its SHA-256 is stored."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from deborgen_shared.messages import CreatedToken, NewToken, Tokens, TokenView
from deborgen_shared.states import Role, WorkerState

from ..storage import tokens, workers
from ..storage.rows import TokenRow
from . import views
from .attempts.outcomes import release_all
from .context import COORDINATOR, Actor, Context
from .lookup import Noun, UnknownName
from .work import About, Work


def create(ctx: Context, actor: Actor, body: NewToken) -> CreatedToken:
    """Create a token. No other answer contains its secret."""
    token_id = secrets.token_hex(6)
    text = f"dbg_{body.role}_{token_id}_{secrets.token_urlsafe(32).replace('_', '-')}"
    digest = hashlib.sha256(text.encode()).hexdigest()

    def insert(work: Work) -> TokenRow:
        expires = work.now + body.expires_in_seconds if body.expires_in_seconds else None
        row = TokenRow(token_id, body.role, body.name, digest, work.now, expires, None, None)
        tokens.insert(work.tx, row)
        _record(work, "token.created", row)
        return row

    return CreatedToken(**_fields(ctx.work(actor, insert)), token=text)


def _fields(row: TokenRow) -> dict[str, Any]:
    """The fields of a token that a list of tokens shows."""
    return {
        "id": row.id,
        "role": row.role,
        "name": row.name,
        "created_at": views.when(row.created_at),
        "expires_at": views.maybe_when(row.expires_at),
        "last_used_at": views.maybe_when(row.last_used_at),
    }


def list_tokens(ctx: Context, actor: Actor = COORDINATOR) -> Tokens:
    """The tokens that were not revoked, including expired ones: all for an admin, for others their own."""
    rows = [row for row in ctx.store.read(tokens.list_valid) if _is_allowed(actor, row)]
    return Tokens(items=[TokenView(**_fields(row)) for row in rows], next=None)


def _is_allowed(actor: Actor, row: TokenRow) -> bool:
    """Whether this person may see and revoke a token. Everybody may, if it is the person's own."""
    return actor.role is Role.ADMIN or (row.name == actor.name and row.role != Role.WORKER)


def revoke(ctx: Context, actor: Actor, token_id: str) -> None:
    """Revoke a token: an admin any, other people their own. If it was the last token of a worker, the worker's attempts
    are released."""

    def end(work: Work) -> None:
        row = tokens.get(work.tx, token_id)
        if row is None or not _is_allowed(actor, row):
            raise UnknownName(Noun.TOKEN, f"there is no token {token_id}")
        if not tokens.revoke(work.tx, token_id, work.now):
            return
        _record(work, "token.revoked", row)
        others = [other for other in tokens.list_valid(work.tx) if other.role == Role.WORKER and other.name == row.name]
        worker = workers.get(work.tx, row.name, lock=True) if row.role == Role.WORKER and not others else None
        if worker is not None and worker.state is not WorkerState.LEFT:
            release_all(work, worker, f"the token of worker {row.name} was revoked")
            workers.leave(work.tx, worker.id, "its token was revoked")
            work.record("worker.left", About(worker=row.name), data={"reason": "its token was revoked"})

    ctx.work(actor, end)
    ctx.known_tokens.pop(token_id)


def _record(work: Work, type_: str, row: TokenRow) -> None:
    about = About(worker=row.name if row.role == Role.WORKER else None)
    work.record(type_, about, data={"id": row.id, "role": row.role, "name": row.name})
