"""Tokens: minted, listed and revoked by admins."""

from __future__ import annotations

from deborgen_coordinator.http.answers import Reply
from deborgen_coordinator.http.routes import Request, serves
from deborgen_coordinator.operations import tokens
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.queries import NoQuery


@serves(contract.CREATE_TOKEN)
def create(request: Request[m.NewToken, NoQuery]) -> m.CreatedToken:
    return tokens.create(request.ctx, request.actor, request.body)


@serves(contract.LIST_TOKENS)
def list_tokens(request: Request[None, NoQuery]) -> m.Tokens:
    return tokens.list_tokens(request.ctx)


@serves(contract.REVOKE_TOKEN)
def revoke(request: Request[None, NoQuery]) -> Reply:
    tokens.revoke(request.ctx, request.actor, request.names["token"])
    return Reply(204)


@serves(contract.ME)
def me(request: Request[None, NoQuery]) -> m.Me:
    return m.Me(name=request.actor.name, role=str(request.actor.role))
