"""Authentication: whose token a request carries. Only the SHA-256 of a token is stored."""

from __future__ import annotations

import hashlib
import hmac

from msgspec.structs import replace

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.states import Role

from ..storage import tokens
from ..storage.rows import TokenRow
from .context import TOKEN_CACHE_SECONDS, Actor, Context

#: Store the time of a token's last use at most once per this many seconds.
USE_RESOLUTION = 60.0


def _refused(message: str) -> Refusal:
    return Refusal(Code.UNAUTHENTICATED, message)


def _known(ctx: Context, token_id: str) -> tuple[TokenRow | None, float]:
    """The token as it was at most TOKEN_CACHE_SECONDS ago, if there is one, and until when it is kept."""
    row, until = ctx.known_tokens.get(token_id) or (None, 0.0)
    if token_id and ctx.clock.steady() >= until:
        row = ctx.store.read(lambda reader: tokens.get(reader, token_id))
        until = ctx.clock.steady() + TOKEN_CACHE_SECONDS
        if row is not None:
            ctx.known_tokens.update({token_id: (row, until)})
    return row, until


def valid_token(ctx: Context, token_id: str) -> TokenRow | None:
    """A token that was accepted before, if it is still valid: it was not revoked, and has not expired."""
    row, _ = _known(ctx, token_id)
    if row is None or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= ctx.clock.wall()):
        return None
    return row


def authenticate(ctx: Context, text: str) -> Actor:
    """The token's owner. An unknown, a revoked and a wrong token get the same answer."""
    parts = text.split("_", 3)
    token_id = parts[2] if len(parts) == 4 and parts[0] == "dbg" else ""
    if not token_id.isascii() or len(text) > 200:
        raise _refused("this is not a token of this coordinator")
    row, until = _known(ctx, token_id)
    given = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    right = hmac.compare_digest(given, row.digest if row else "0" * 64)
    now = ctx.clock.wall()
    if row is None or not right or row.revoked_at is not None:
        raise _refused("this is not a valid token of this coordinator")
    if row.expires_at is not None and row.expires_at <= now:
        raise _refused("this token has expired")
    if row.last_used_at is None or abs(now - row.last_used_at) > USE_RESOLUTION:
        ctx.known_tokens.update({token_id: (replace(row, last_used_at=now), until)})
        ctx.store.write_later(lambda tx: tokens.note_use(tx, token_id, now))
    return Actor(Role(row.role), row.name, row.id)
