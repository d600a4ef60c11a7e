"""Signing in and out: with the link of `deborgen open`, or with a token."""

from __future__ import annotations

from deborgen_coordinator.http import sessions
from deborgen_coordinator.operations import sign_ins
from deborgen_coordinator.operations.authenticate import authenticate
from deborgen_coordinator.operations.context import Actor
from deborgen_coordinator.web.pages import NOBODY, NOBODY_YET, PEOPLE, PageRequest, action, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.errors import Code, Refusal


@page(sign_ins.PATH, by=NOBODY)
def show_sign_in(request: PageRequest) -> HtmlAnswer:
    """A link leads here. Opening the page does not use the link up: only its button does."""
    return _form(request, code=request.query.get("code", ""))


@action(sign_ins.PATH, by=NOBODY)
def sign_in(request: PageRequest) -> HtmlAnswer:
    host = sessions.host_of(request.environ)
    try:
        if code := request.field("code"):
            secret = sign_ins.use_link(request.ctx, code, host)
        else:
            secret = sign_ins.begin_session(request.ctx, _person(request), host)
    except Refusal as refusal:
        return _form(request, refusal)
    if request.actor is not NOBODY_YET:
        sign_ins.end_session(request.ctx, request.actor)
    answer = request.go(_own_path(request.field("next")))
    answer.headers |= sessions.set_cookie(request.environ, secret, sign_ins.SESSION_SECONDS)
    return answer


@action("/sign-out", by=PEOPLE)
def sign_out(request: PageRequest) -> HtmlAnswer:
    sign_ins.end_session(request.ctx, request.actor)
    answer = request.go(sign_ins.PATH)
    answer.headers |= sessions.set_cookie(request.environ, "", 0)
    return answer


def _person(request: PageRequest) -> Actor:
    text = request.field("token").strip()
    if not text:
        raise Refusal(Code.UNAUTHENTICATED, "the field is empty", "paste your token, or run: deborgen open")
    actor = authenticate(request.ctx, text)
    if actor.role not in PEOPLE:
        raise Refusal(Code.FORBIDDEN, "this is the token of a machine", "sign in with the token of a person")
    return actor


def _form(request: PageRequest, refusal: Refusal | None = None, code: str = "") -> HtmlAnswer:
    wanted = _own_path(request.query.get("next", "") or request.field("next"))
    status = refusal.status if refusal else 200
    return request.render("sign_in.html", status, refusal=refusal, code=code, next=wanted)


def _own_path(text: str) -> str:
    """The path of a page of ours; never the address of another site."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isascii() and text.isprintable()
    return text if is_own else "/"
