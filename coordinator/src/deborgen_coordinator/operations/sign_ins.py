"""Signing in to the dashboard: a link that works once begins a session, which ends with its token at the latest."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import SignInLink
from deborgen_shared.states import Role

from ..storage import sign_ins
from ..storage.rows import SignInRow
from ..storage.transactions import Tx
from . import views
from .authenticate import valid_token
from .context import TOKEN_CACHE_SECONDS, Actor, Context

#: A link must be used within this many seconds.
LINK_SECONDS = 60.0
#: A session ends after this many seconds.
SESSION_SECONDS = 12 * 3600.0
#: A token has at most this many links and sessions. A further one ends the oldest.
MOST_EACH = 50
#: The page that a link opens.
PATH = "/sign-in"


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def csrf_of(secret: str) -> str:
    """The word that a page of this session sends with each change. No other site can read it."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"csrf", hashlib.sha256).hexdigest()[:32]


def create_link(ctx: Context, actor: Actor) -> SignInLink:
    """A link that signs its reader in as this actor, once, within a minute."""
    secret = secrets.token_urlsafe(24)
    row = _row(actor.token_id, secret, True, "", ctx.clock.wall() + LINK_SECONDS)
    ctx.store.write(lambda tx: _add(tx, row, ctx.clock.wall()))
    return SignInLink(path=f"{PATH}?code={secret}", expires_at=views.when(row.expires_at))


def use_link(ctx: Context, code: str, host: str) -> str:
    """Use up a link; return the secret of the new session."""
    secret, now = secrets.token_urlsafe(32), ctx.clock.wall()

    def begin(tx: Tx) -> bool:
        found = sign_ins.get(tx, digest_of(code))
        # Whoever removes the row may use the link: of two browsers, one.
        if found is None or not found.is_link or not sign_ins.remove(tx, found.digest) or found.expires_at <= now:
            return False
        _add(tx, _row(found.token_id, secret, False, host, now + SESSION_SECONDS), now)
        return True

    if not ctx.store.write(begin):
        raise Refusal(
            Code.FORBIDDEN,
            "this link was used already, or is older than a minute",
            "run: deborgen open",
        )
    return secret


def begin_session(ctx: Context, actor: Actor, host: str) -> str:
    """Begin a session for somebody who has shown a token; return the secret of the session."""
    secret, now = secrets.token_urlsafe(32), ctx.clock.wall()
    ctx.store.write(lambda tx: _add(tx, _row(actor.token_id, secret, False, host, now + SESSION_SECONDS), now))
    return secret


def end_session(ctx: Context, actor: Actor) -> None:
    ctx.store.write(lambda tx: sign_ins.remove(tx, actor.sign_in))
    ctx.known_sign_ins.pop(actor.sign_in)


def session_of(ctx: Context, secret: str, host: str) -> Actor | None:
    """Whose session this is, or None: it has ended, or was begun at another address."""
    row = _known(ctx, digest_of(secret)) if secret else None
    token = valid_token(ctx, row.token_id) if row is not None and row.host == host else None
    return Actor(Role(token.role), token.name, token.id, digest_of(secret)) if token else None


def may_go_on(ctx: Context, token_id: str, sign_in: str) -> bool:
    """Whether a stream goes on: its token is valid, and its session, if it has one, was not ended."""
    return valid_token(ctx, token_id) is not None and (not sign_in or _known(ctx, sign_in) is not None)


def _known(ctx: Context, digest: str) -> SignInRow | None:
    """The session, as it was at most TOKEN_CACHE_SECONDS ago."""
    row, until = ctx.known_sign_ins.get(digest) or (None, 0.0)
    if ctx.clock.steady() >= until:
        row = ctx.store.read(lambda reader: sign_ins.get(reader, digest))
        if row is not None:
            ctx.known_sign_ins.update({digest: (row, ctx.clock.steady() + TOKEN_CACHE_SECONDS)})
    return row if row is not None and not row.is_link and row.expires_at > ctx.clock.wall() else None


def _row(token_id: str, secret: str, is_link: bool, host: str, expires_at: float) -> SignInRow:
    return SignInRow(digest_of(secret), token_id, is_link, host, expires_at)


def _add(tx: Tx, row: SignInRow, now: float) -> None:
    sign_ins.remove_expired(tx, now)
    sign_ins.remove_oldest(tx, row.token_id, keep=MOST_EACH - 1)
    sign_ins.insert(tx, row)
