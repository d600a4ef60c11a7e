"""What is mine: my tokens, my secrets without their values, my machines."""

from __future__ import annotations

import re

from deborgen_coordinator.operations import secrets, tokens
from deborgen_coordinator.operations.workers import look as workers
from deborgen_coordinator.web.pages import PageRequest, action, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.calls import PATH_NAMES
from deborgen_shared.contract import SUBMITTERS
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import LONGEST_SECRET, OWNER_LABEL, SHORTEST_SECRET, NewSecret


@page("/me")
def show_me(request: PageRequest) -> HtmlAnswer:
    ctx, actor = request.ctx, request.actor
    may_use = actor.role in SUBMITTERS
    return request.render(
        "me.html",
        tokens=[each for each in tokens.list_tokens(ctx, actor).items if each.name == actor.name],
        secrets=secrets.list_secrets(ctx, actor).items if may_use else [],
        machines=[each for each in workers.list_workers(ctx).items if each.labels.get(OWNER_LABEL) == actor.name],
    )


@action("/me/tokens/{token}/revoke")
def revoke(request: PageRequest) -> HtmlAnswer:
    tokens.revoke(request.ctx, request.actor, request.names["token"])
    return request.go("/me", done="revoked")


@action("/me/secrets")
def set_secret(request: PageRequest) -> HtmlAnswer:
    name, value = request.field("name").strip(), request.field("value")
    if not re.fullmatch(PATH_NAMES["secret"].pattern, name):
        raise Refusal(Code.MALFORMED, f"{name[:40]!r} cannot be the name of a secret", PATH_NAMES["secret"].hint)
    if not SHORTEST_SECRET <= len(value) <= LONGEST_SECRET or "\0" in value:
        message = f"the value of a secret has {SHORTEST_SECRET} to {LONGEST_SECRET} characters"
        raise Refusal(Code.MALFORMED, message, "a shorter one could not be hidden in logs")
    shared = request.field("shared") == "1"
    secrets.set_secret(request.ctx, request.actor, name, NewSecret(value=value, shared=shared))
    return request.go("/me", done="set")


@action("/me/secrets/{secret}/remove")
def remove_secret(request: PageRequest) -> HtmlAnswer:
    secrets.remove_secret(request.ctx, request.actor, request.names["secret"], request.field("shared") == "1")
    return request.go("/me", done="removed")
