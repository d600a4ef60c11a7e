"""Authentication: whose token a request carries. Only the SHA-256 of a token is stored."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import Role

from ..storage import tokens
from .context import Actor, Context

#: Store the time of a token's last use at most once per this many seconds.
USE_RESOLUTION = 60.0


def _refused(message: str) -> Refusal:
    return Refusal(Code.UNAUTHENTICATED, message)


def authenticate(ctx: Context, text: str) -> Actor:
    """The token's owner. An unknown, a revoked and a wrong token get the same answer."""
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
        ctx.store.write_later(lambda tx: tokens.note_use(tx, token_id, now))
    return Actor(Role(row.role), row.name, row.id)
