"""Answers, and the one shape that all refusals have."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from werkzeug.exceptions import HTTPException

from deborgen_coordinator.blobs import StoreUnavailable
from deborgen_coordinator.disk_reserve import DiskReserve
from deborgen_coordinator.http.hints import add_hint
from deborgen_coordinator.storage.database import DatabaseUnavailable
from deborgen_shared import contract, headers
from deborgen_shared.calls import JSON
from deborgen_shared.errors import Code, Refusal

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

log = logging.getLogger("deborgen.http")

_encode = msgspec.json.Encoder().encode
_STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


@dataclass(slots=True)
class HandlerAnswer:
    """A handler's answer with a status other than the call's usual one, or with headers."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class WsgiAnswer:
    """A short, complete WSGI answer. It is cheaper than Flask's Response, which inspects all its headers."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: Any, sent: dict[str, str]) -> None:
        self.status, self.headers, self.body = status, sent, b""
        if body is not None:
            self.body = _encode(body)
            sent[headers.CONTENT_TYPE] = JSON
            sent[headers.CONTENT_LENGTH] = str(len(self.body))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response(_STATUS_LINES[self.status], list(self.headers.items()))
        return (self.body,) if environ["REQUEST_METHOD"] != "HEAD" and self.body else ()


def render(reply: HandlerAnswer) -> WsgiAnswer:
    return WsgiAnswer(reply.status, reply.body, {headers.CACHE_CONTROL: "no-store", **reply.headers})


def answer_problem(problem: Exception, reserve: DiskReserve) -> WsgiAnswer:
    """The answer to a request that raised this exception."""
    if isinstance(problem, Refusal):
        return refuse(problem)
    if isinstance(problem, StoreUnavailable):
        log.warning("the object store could not serve a request: %s", problem)
        return refuse(store_unavailable())
    if isinstance(problem, HTTPException):
        return _refuse_http(problem)
    if isinstance(problem, DatabaseUnavailable):
        return _refuse_database(problem, reserve)
    return _answer_internal_error(problem)


def refuse(refusal: Refusal) -> WsgiAnswer:
    add_hint(refusal)
    sent = dict(refusal.headers)
    if refusal.code is Code.UNAUTHENTICATED:
        sent[headers.WWW_AUTHENTICATE] = "Bearer"
    if refusal.code in (Code.UNAVAILABLE, Code.SLOW_DOWN):
        sent.setdefault(headers.RETRY_AFTER, "1")
    return WsgiAnswer(refusal.status, refusal.body(), sent)


def disk_full() -> Refusal:
    message, hint = "the coordinator's disk is full", "try again later"
    return Refusal(Code.UNAVAILABLE, message, hint, headers={headers.RETRY_AFTER: "30"})


def store_unavailable() -> Refusal:
    message, hint = "the object store of this pool does not answer, or refuses", "try again later"
    return Refusal(Code.STORE_UNAVAILABLE, message, hint, headers={headers.RETRY_AFTER: "5"})


def _refuse_http(problem: HTTPException) -> WsgiAnswer:
    """Flask's own refusals: unknown paths, and methods that a path does not accept."""
    if problem.code == 405:
        answer = refuse(Refusal(Code.METHOD_NOT_ALLOWED, "this path does not accept that method"))
        allowed = getattr(problem, "valid_methods", None)
        if allowed:
            answer.headers[headers.ALLOW] = ", ".join(sorted(allowed))
        return answer
    if problem.code == 404:
        return refuse(
            Refusal(Code.NOT_FOUND, "there is nothing at this path", f"GET {contract.OPENAPI.path} lists all paths")
        )
    if problem.code == 413:
        return refuse(Refusal(Code.TOO_LARGE, "the body is too large"))
    return refuse(Refusal(Code.MALFORMED, f"the request cannot be understood: {problem.name}"))


def _refuse_database(problem: DatabaseUnavailable, reserve: DiskReserve) -> WsgiAnswer:
    log.warning("the database could not serve a request: %s", problem)
    reserve.measure()
    return refuse(
        Refusal(
            Code.UNAVAILABLE, "the database cannot be used right now", "try again", headers={headers.RETRY_AFTER: "2"}
        )
    )


def _answer_internal_error(problem: Exception) -> WsgiAnswer:
    log.error("a request failed unexpectedly", exc_info=problem)
    message = "the coordinator failed unexpectedly; its log says why"
    return WsgiAnswer(500, {"error": {"code": "internal", "message": message, "hint": ""}}, {})
