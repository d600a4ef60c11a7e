"""Secrets: people set, list and remove them. No answer contains a value."""

from __future__ import annotations

from deborgen_coordinator.http.answers import HandlerAnswer
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations import secrets
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.queries import NoQuery, SecretQuery


@serves(contract.SET_SECRET)
def set_secret(request: CallRequest[m.NewSecret, NoQuery]) -> m.SecretView:
    return secrets.set_secret(request.ctx, request.actor, request.names["secret"], request.body)


@serves(contract.LIST_SECRETS)
def list_secrets(request: CallRequest[None, NoQuery]) -> m.Secrets:
    return secrets.list_secrets(request.ctx, request.actor)


@serves(contract.REMOVE_SECRET)
def remove_secret(request: CallRequest[None, SecretQuery]) -> HandlerAnswer:
    secrets.remove_secret(request.ctx, request.actor, request.names["secret"], bool(request.query.shared))
    return HandlerAnswer(204)
