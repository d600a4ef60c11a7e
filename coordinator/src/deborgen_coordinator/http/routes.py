"""Routes: each call of the contract with its handler, and the checks that run before the handler."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from flask import Flask, Response

from deborgen_coordinator.disk_reserve import DiskReserve
from deborgen_coordinator.http import bodies
from deborgen_coordinator.http.answers import HandlerAnswer, disk_full, render
from deborgen_coordinator.http.decoding import convert, malformed, parse
from deborgen_coordinator.http.hints import add_hint
from deborgen_coordinator.http.sessions import authenticate_session
from deborgen_coordinator.http.streams import Streams
from deborgen_coordinator.operations.authenticate import authenticate
from deborgen_coordinator.operations.context import Actor, Context
from deborgen_shared import headers
from deborgen_shared.calls import LONG_NAMES, PATH_NAMES, Call, JobId
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.queries import NoQuery
from deborgen_shared.states import Role

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}
_NO_QUERY = NoQuery()
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,200}")

B = TypeVar("B")
Q = TypeVar("Q")


@dataclass(slots=True)
class CallRequest(Generic[B, Q]):
    """A checked request, as a handler receives it."""

    ctx: Context
    streams: Streams
    actor: Actor
    names: dict[str, Any]
    query: Q
    body: B
    raw: bytes
    environ: dict[str, Any]

    @property
    def run(self) -> int:
        return int(self.names["run"])

    @property
    def job(self) -> JobId:
        job: JobId = self.names["job"]
        return job

    @property
    def name(self) -> str:
        return str(self.names["name"])

    def header(self, name: str) -> str | None:
        value: str | None = self.environ.get(headers.environ_key(name))
        return value

    def idempotency_key(self) -> str | None:
        key = self.header(headers.IDEMPOTENCY_KEY)
        if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
            raise malformed(f"the header {headers.IDEMPOTENCY_KEY} must have 1 to 200 visible ASCII characters")
        return key


Handler = Callable[[CallRequest[Any, Any]], Any]


class Route(NamedTuple):
    """A call of the contract, and its handler."""

    call: Call[Any]
    handler: Handler

    @property
    def rule(self) -> str:
        """The path in Flask's notation."""
        return re.sub(r"{(\w+)}", lambda m: f"<path:{m[1]}>" if m[1] in LONG_NAMES else f"<{m[1]}>", self.call.path)


ROUTES: list[Route] = []


def serves(call: Call[Any]) -> Callable[[Handler], Handler]:
    """Make the decorated function the handler of the call."""

    def add_route(handler: Handler) -> Handler:
        ROUTES.append(Route(call, handler))
        return handler

    return add_route


#: Serves a request: takes its WSGI environment and the variables of its path, and returns the WSGI answer.
View = Callable[[dict[str, Any], Mapping[str, Any]], Callable[..., Iterable[bytes]]]


def register(app: Flask, ctx: Context, streams: Streams, reserve: DiskReserve) -> dict[str, View]:
    """Add a rule per route to the application, and return the views by endpoint.

    GET also serves HEAD, unless HEAD has its own route.
    """
    own_head = {route.call.path for route in ROUTES if route.call.method == "HEAD"}
    views: dict[str, View] = {}
    for route in ROUTES:
        method, path = route.call.method, route.call.path
        views[f"{method} {path}"] = _view(route, ctx, streams, reserve)
        app.add_url_rule(route.rule, f"{method} {path}", methods=[method], provide_automatic_options=False)
        if method == "GET" and path in own_head:
            for rule in app.url_map.iter_rules(f"GET {path}"):
                assert rule.methods is not None
                rule.methods.discard("HEAD")

    _refuse_other_methods(app)
    return views


def _refuse_other_methods(app: Flask) -> None:
    """Refuse other methods on paths without variables, so that /v1/runs/check is never taken for the name of a run."""
    for path in {route.call.path for route in ROUTES if not route.call.path_names}:
        taken = {route.call.method for route in ROUTES if route.call.path == path}
        taken |= {"HEAD"} if "GET" in taken else set()

        def refuse(allowed: str = ", ".join(sorted(taken))) -> Response:
            message = "this path does not accept that method"
            raise Refusal(Code.METHOD_NOT_ALLOWED, message, headers={headers.ALLOW: allowed})

        app.add_url_rule(path, f"other {path}", refuse, methods=METHODS - taken, provide_automatic_options=False)
        for rule in app.url_map.iter_rules(f"other {path}"):
            assert rule.methods is not None
            rule.methods -= taken


def _suggested(roles: frozenset[Role], role: Role) -> frozenset[Role]:
    """The roles to suggest to a caller: a person has no use for a worker's token."""
    return roles - {Role.WORKER} or roles if role is not Role.WORKER else roles


def _view(route: Route, ctx: Context, streams: Streams, reserve: DiskReserve) -> View:
    call, handler = route
    read_query = _query_reader(call.query)
    limit = getattr(ctx.settings, call.limit)
    readers = [(name, PATH_NAMES[name].parse) for name in call.path_names]
    usual_status = call.gives.status
    roles, expected, optional, writes_to_disk = call.by, call.takes, call.body_optional, call.writes_to_disk
    nobody = Actor(Role.VIEWER, "", "")

    def view(environ: dict[str, Any], parts: Mapping[str, Any]) -> Callable[..., Iterable[bytes]]:
        actor = authenticate_request(ctx, environ) if roles else nobody
        if roles and actor.role not in roles:
            raise Refusal(
                Code.FORBIDDEN,
                f"a token of the role {actor.role} cannot do this",
                f"use the token of a role that can: {' or '.join(sorted(_suggested(roles, actor.role)))}",
            )
        if writes_to_disk and not reserve.has_space():
            raise disk_full()
        names = {name: parse(parts[name]) for name, parse in readers}
        query = read_query(environ.get("QUERY_STRING", ""))
        raw, body = b"", None
        if expected is not None and expected is not bytes:
            length = bodies.length_of(environ, limit, required=not optional)
            if length or not optional:
                bodies.require_json(environ)
                raw = bodies.read(environ, length)
                body = convert(parse(raw), expected)
            else:
                body = expected()
        try:
            answer = handler(CallRequest(ctx, streams, actor, names, query, body, raw, environ))
        except Refusal as refusal:
            add_hint(refusal, names)
            raise
        if isinstance(answer, Response):
            return answer
        return render(answer) if isinstance(answer, HandlerAnswer) else render(HandlerAnswer(usual_status, answer))

    return view


_AUTHORIZATION = headers.environ_key(headers.AUTHORIZATION)
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/=-]{1,512})")


def authenticate_request(ctx: Context, environ: Mapping[str, Any]) -> Actor:
    header = environ.get(_AUTHORIZATION)
    if not header and (actor := authenticate_session(ctx, environ)) is not None:
        return actor
    found = _BEARER.fullmatch(header) if header else None
    if not found:
        raise Refusal(
            Code.UNAUTHENTICATED,
            "no token was sent" if not header else f"the header {headers.AUTHORIZATION} does not hold a bearer token",
        )
    return authenticate(ctx, found[1])


def _query_reader(kind: Any) -> Callable[[str], Any]:
    """A function that turns a query string into the parameters that the call declares."""
    fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
    integers = {name for name, f in fields.items() if "int" in str(f.type)}
    words = {name: _words(fields[name].type) for name in integers}

    def read(text: str) -> Any:
        if not text:
            return _NO_QUERY if kind is NoQuery else convert({}, kind, "query")
        found: dict[str, Any] = {}
        for name, value in _pairs(text):
            if name not in fields:
                near = difflib.get_close_matches(name, fields, 1)
                known = f"its query parameters are: {', '.join(fields)}" if fields else "it has no query parameters"
                raise malformed(
                    f"this call has no query parameter {name[:100]!r}",
                    f"did you mean {near[0]!r}?" if near else known,
                )
            if name in found:
                raise malformed(f"the query parameter {name!r} is given twice")
            if name in integers and _INTEGER.fullmatch(value):
                found[name] = int(value)
            elif name in integers and value not in words[name]:
                other = "".join(f" or the word {word}" for word in words[name])
                raise malformed(f"the query parameter {name!r} must be a whole number{other}")
            else:
                found[name] = value
        return convert(found, kind, "query")

    return read


def _words(kind: Any) -> list[str]:
    """The words that a parameter accepts instead of a number."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return [word for part in parts for word in _words(part)]


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise malformed("the query string cannot be read", "write it as NAME=VALUE&NAME=VALUE in UTF-8") from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise malformed("the query string contains a NUL character")
    return pairs
