"""Tokens: `dbg_ROLE_ID_SECRET`. The secret is shown once; only its SHA-256 is stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import replace
from typing import Any

from deborgen_shared import contract, headers
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import CreatedToken, NewToken, Tokens, TokenView
from deborgen_shared.states import Role, WorkerState

from ..storage import tokens, workers
from ..storage.rows import TokenRow
from ..storage.transactions import Tx
from . import views
from .context import Actor, Context
from .history import record
from .transitions import write
from .workers import release_all

#: When a token was last used is written down at most this often.
USE_RESOLUTION = 60.0


def _refused(message: str) -> Refusal:
    return Refusal(
        Code.UNAUTHENTICATED,
        message,
        f"send {headers.AUTHORIZATION}: Bearer TOKEN; an admin makes one with: deborgen token create",
        headers={headers.WWW_AUTHENTICATE: "Bearer"},
    )


def authenticate(ctx: Context, text: str) -> Actor:
    """Who the token speaks for. Whether it is unknown, revoked or wrong, the answer is the same."""
    parts = text.split("_", 3)
    token_id = parts[2] if len(parts) == 4 and parts[0] == "dbg" else ""
    if not token_id.isascii() or len(text) > 200:
        raise _refused("this is not a token of this coordinator")
    row = ctx.known_tokens.get(token_id)
    if row is None and token_id:
        row = ctx.store.read(lambda reader: tokens.get(reader, token_id))
        if row is not None:
            ctx.known_tokens.update({token_id: row})
    given = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    right = hmac.compare_digest(given, row.digest if row else "0" * 64)
    now = ctx.clock.wall()
    if row is None or not right or row.revoked_at is not None:
        raise _refused("this is not a valid token of this coordinator")
    if row.expires_at is not None and row.expires_at <= now:
        raise _refused("this token has expired")
    if row.last_used_at is None or abs(now - row.last_used_at) > USE_RESOLUTION:
        ctx.known_tokens.update({token_id: replace(row, last_used_at=now)})
        ctx.store.write_later(lambda tx: tokens.used(tx, token_id, now))
    return Actor(Role(row.role), row.name, row.id)


def create(ctx: Context, actor: Actor, body: NewToken) -> CreatedToken:
    """A new token; the only moment at which its secret can be seen."""
    token_id = secrets.token_hex(6)
    text = f"dbg_{body.role}_{token_id}_{secrets.token_urlsafe(32).replace('_', '-')}"
    now = ctx.clock.wall()
    expires = now + body.expires_in_seconds if body.expires_in_seconds else None
    row = TokenRow(token_id, body.role, body.name, hashlib.sha256(text.encode()).hexdigest(), now, expires, None, None)

    def work(tx: Tx) -> None:
        tokens.insert(tx, row)
        _record(tx, now, "token.created", actor, row)

    ctx.store.write(work)
    return CreatedToken(**_fields(row), token=text)


def _record(tx: Tx, now: float, type_: str, actor: Actor, row: TokenRow) -> None:
    worker = row.name if row.role == Role.WORKER else None
    record(tx, now, type_, actor, worker=worker, data={"id": row.id, "role": row.role, "name": row.name})


def _fields(row: TokenRow) -> dict[str, Any]:
    """What everybody who may see tokens sees of one."""
    return {
        "id": row.id,
        "role": row.role,
        "name": row.name,
        "created_at": views.when(row.created_at),
        "expires_at": views.maybe_when(row.expires_at),
        "last_used_at": views.maybe_when(row.last_used_at),
    }


def list_tokens(ctx: Context) -> Tokens:
    """Every token that was not revoked."""
    return Tokens(items=[TokenView(**_fields(row)) for row in ctx.store.read(tokens.valid)], next=None)


def revoke(ctx: Context, actor: Actor, token_id: str) -> None:
    """From now on the token is worth nothing. What a worker held by its last token is released."""
    now = ctx.clock.wall()

    def work(tx: Tx) -> None:
        row = tokens.get(tx, token_id)
        if row is None:
            raise Refusal(
                Code.NOT_FOUND, f"there is no token {token_id}", f"GET {contract.LIST_TOKENS.path} lists them"
            )
        if not tokens.revoke(tx, token_id, now):
            return
        _record(tx, now, "token.revoked", actor, row)
        others = [other for other in tokens.valid(tx) if other.role == Role.WORKER and other.name == row.name]
        worker = workers.get(tx, row.name, lock=True) if row.role == Role.WORKER and not others else None
        if worker is not None and worker.state is not WorkerState.LEFT:
            release_all(ctx, tx, actor, worker, f"the token of worker {row.name} was revoked", now)
            workers.leave(tx, worker.id, "its token was revoked")
            record(tx, now, "worker.left", actor, worker=row.name, data={"reason": "its token was revoked"})

    write(ctx, work)
    ctx.known_tokens.pop(token_id)
