"""Tokens: minted, listed and revoked by admins."""

from __future__ import annotations

from deborgen_coordinator.http.answers import Reply
from deborgen_coordinator.http.routes import ADMINS, EVERYONE, Answer, Call, NoQuery, route
from deborgen_coordinator.operations import tokens
from deborgen_shared import messages as m


@route(
    "POST", "/v1/tokens", roles=ADMINS, body=m.NewToken, answers={201: Answer("the token", m.CreatedToken)},
    summary="Mint a token. Its secret is in this answer, and nowhere else.",
)  # fmt: skip
def create(call: Call[m.NewToken, NoQuery]) -> m.CreatedToken:
    return tokens.create(call.ctx, call.actor, call.body)


@route(
    "GET", "/v1/tokens", roles=ADMINS, answers={200: Answer("the tokens", m.Tokens)},
    summary="All tokens, without their secrets.",
)  # fmt: skip
def list_tokens(call: Call[None, NoQuery]) -> m.Tokens:
    return tokens.list_tokens(call.ctx)


@route(
    "DELETE", "/v1/tokens/{token}", roles=ADMINS, answers={204: Answer("it is revoked", None)},
    summary="Revoke a token: it opens nothing any more.",
)  # fmt: skip
def revoke(call: Call[None, NoQuery]) -> Reply:
    tokens.revoke(call.ctx, call.actor, call.names["token"])
    return Reply(204)


@route("GET", "/v1/me", roles=EVERYONE, answers={200: Answer("you", m.Me)}, summary="Whose token this is.")
def me(call: Call[None, NoQuery]) -> m.Me:
    return m.Me(name=call.actor.name, role=str(call.actor.role))
