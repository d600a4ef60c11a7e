"""Tokens: admins create, list and revoke them."""

from __future__ import annotations

from deborgen_coordinator.http.answers import HandlerAnswer
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations import sign_ins, tokens
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.queries import NoQuery


@serves(contract.CREATE_TOKEN)
def create(request: CallRequest[m.NewToken, NoQuery]) -> m.CreatedToken:
    return tokens.create(request.ctx, request.actor, request.body)


@serves(contract.LIST_TOKENS)
def list_tokens(request: CallRequest[None, NoQuery]) -> m.Tokens:
    return tokens.list_tokens(request.ctx, request.actor)


@serves(contract.REVOKE_TOKEN)
def revoke(request: CallRequest[None, NoQuery]) -> HandlerAnswer:
    tokens.revoke(request.ctx, request.actor, request.names["token"])
    return HandlerAnswer(204)


@serves(contract.CREATE_LINK)
def create_link(request: CallRequest[None, NoQuery]) -> m.SignInLink:
    return sign_ins.create_link(request.ctx, request.actor)


@serves(contract.ME)
def me(request: CallRequest[None, NoQuery]) -> m.Me:
    return m.Me(name=request.actor.name, role=str(request.actor.role), default_image=request.ctx.settings.default_image)
