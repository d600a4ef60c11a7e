"""Answers, and the one shape of every refusal."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import msgspec
from flask import Flask, Response
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException

from deborgen_coordinator.http.reserve import Reserve
from deborgen_coordinator.storage.database import DatabaseUnavailable
from deborgen_shared import contract, headers
from deborgen_shared.calls import JSON
from deborgen_shared.errors import Code, Refusal

log = logging.getLogger("deborgen.http")

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Reply:
    """An answer with another status than the usual one, or with headers."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class JsonResponse(Response):
    """An answer whose headers are complete as they stand, so that nothing looks them over once more."""

    def get_wsgi_headers(self, environ: Any) -> Headers:
        return self.headers


def render(reply: Reply) -> Response:
    if reply.body is None:
        return Response(b"", reply.status, reply.headers)
    data = _encode(reply.body)
    sent = {headers.CACHE_CONTROL: "no-store", headers.CONTENT_LENGTH: str(len(data)), **reply.headers}
    return JsonResponse(data, reply.status, sent, None, JSON)


def refuse(refusal: Refusal) -> Response:
    sent = dict(refusal.headers)
    if refusal.code is Code.UNAUTHENTICATED:
        sent[headers.WWW_AUTHENTICATE] = "Bearer"
    if refusal.code in (Code.UNAVAILABLE, Code.SLOW_DOWN):
        sent.setdefault(headers.RETRY_AFTER, "1")
    return Response(_encode(refusal.body()), refusal.status, sent, None, JSON)


def _refuse_http(problem: HTTPException) -> Response:
    """What Flask itself refuses: unknown paths, and methods that a path does not have."""
    if problem.code == 405:
        answer = refuse(Refusal(Code.METHOD_NOT_ALLOWED, "This path does not take that method."))
        allowed = getattr(problem, "valid_methods", None)
        if allowed:
            answer.headers[headers.ALLOW] = ", ".join(sorted(allowed))
        return answer
    if problem.code == 404:
        return refuse(
            Refusal(Code.NOT_FOUND, "There is nothing at this path.", f"GET {contract.OPENAPI.path} lists all.")
        )
    if problem.code == 413:
        return refuse(Refusal(Code.TOO_LARGE, "The body is too large."))
    return refuse(Refusal(Code.MALFORMED, f"The request cannot be understood: {problem.name}."))


def _refuse_database(problem: DatabaseUnavailable, reserve: Reserve) -> Response:
    log.warning("the database did not take a request: %s", problem)
    reserve.look()
    return refuse(
        Refusal(
            Code.UNAVAILABLE, "The database cannot be used right now.", "Try again.", headers={headers.RETRY_AFTER: "2"}
        )
    )


def _admit(problem: Exception) -> Response:
    log.error("a request failed in an unexpected way", exc_info=problem)
    message = "The coordinator made a mistake; its log says which."
    return Response(_encode({"error": {"code": "internal", "message": message, "hint": ""}}), 500, None, None, JSON)


def register_refusals(app: Flask, reserve: Reserve) -> None:
    app.register_error_handler(Refusal, refuse)
    app.register_error_handler(HTTPException, _refuse_http)
    app.register_error_handler(DatabaseUnavailable, lambda problem: _refuse_database(problem, reserve))
    app.register_error_handler(Exception, _admit)
