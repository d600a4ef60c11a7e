"""The contract as OpenAPI 3.1, written from the table of routes and from the types that decode the requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from deborgen_coordinator.http.answers import JSON
from deborgen_coordinator.http.ids import PATH_NAMES
from deborgen_coordinator.http.routes import RAW, Answer, Route
from deborgen_shared import jobfile
from deborgen_shared import messages as m
from deborgen_shared.errors import STATUS, Code

SCHEMAS = "#/components/schemas/"
#: Headers that must be there, or the call makes no sense.
REQUIRED_HEADERS = {"Upload-Offset"}
#: Headers that HTTP itself describes, and that OpenAPI says must not be listed as parameters.
HTTP_OWN = {"Accept", "Content-Type", "Authorization"}
COUNTS = {"Upload-Offset", "Upload-Length", "Last-Event-ID"}


def refusals_of(route: Route) -> list[Code]:
    """The codes of all refusals that a route can answer with, in the order of the table."""
    codes = {Code.MALFORMED, Code.UNAVAILABLE, *route.refusals}
    if route.roles:
        codes |= {Code.UNAUTHENTICATED, Code.FORBIDDEN}
    if route.path_names:
        codes.add(Code.NOT_FOUND)
    if route.body is not None:
        codes |= {Code.LENGTH_REQUIRED, Code.TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE}
        codes |= {Code.SLOW_DOWN} if route.limit == "max_blob" else set()
    return [code for code in Code if code in codes]


def document(routes: Iterable[Route], version: str) -> dict[str, object]:
    """The whole document."""
    routes = list(routes)
    types = _types(routes)
    _, components = msgspec.json.schema_components(types, ref_template=SCHEMAS + "{name}")
    job, parts = _job_schema()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    written: dict[str, object] = {
        "openapi": "3.1.0",
        "info": {
            "title": "deborgen coordinator",
            "version": version,
            "description": "Runs, jobs, workers, logs, blobs and events of a deborgen pool.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {**components, "JobFile": job, **parts},
        },
    }
    # In JSON Schema `$` means the very end already; the guard is for Python's regular expressions alone.
    return json.loads(json.dumps(written).replace(json.dumps(m.END)[1:-1], "$"))  # type: ignore[no-any-return]


def _types(routes: list[Route]) -> list[Any]:
    found: list[Any] = [m.ErrorAnswer]
    for route in routes:
        found += [a.body for a in route.answers.values()] + [route.body]
    structs = [t for t in found if isinstance(t, type) and issubclass(t, msgspec.Struct)]
    return list(dict.fromkeys(structs))


def _job_schema() -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of the job file as components of this document."""
    text = json.dumps(jobfile.schema(wire=True)).replace('"#/$defs/', f'"{SCHEMAS}JobFile_')
    schema = json.loads(text)
    parts = {f"JobFile_{name}": part for name, part in schema.pop("$defs", {}).items()}
    schema.pop("$schema", None)
    schema.pop("$id", None)
    return schema, parts


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.handler.__module__.rpartition('.')[2]}_{route.handler.__name__}",
        "tags": [route.handler.__module__.rpartition(".")[2]],
        "summary": route.summary,
        "responses": {str(status): _answer(answer) for status, answer in route.answers.items()},
    }
    if route.open_to_all:
        operation["security"] = []
    else:
        operation["description"] = "For tokens of the role " + ", ".join(sorted(route.roles)) + "."
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = _body(route)
    for code in refusals_of(route):
        status = str(STATUS[code])
        answer = operation["responses"].setdefault(status, {"description": "", "content": _content(m.ErrorAnswer)})
        answer["description"] = ", ".join(filter(None, [answer["description"], str(code)]))
        if code in (Code.SLOW_DOWN, Code.UNAVAILABLE):
            answer["headers"] = _headers({"Retry-After": "seconds after which to try again"})
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in route.path_names:
        kind = PATH_NAMES[name]
        schema: dict[str, Any] = {"type": "string", "pattern": f"^{kind.pattern}$"}
        if name == "path":
            schema = {"type": "string", "minLength": 1, "maxLength": 1024}
        found.append(
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": schema,
                "example": kind.example,
                "description": kind.hint,
            }
        )
    for field in msgspec.structs.fields(route.query):
        schema = msgspec.json.schema(field.type)
        if "anyOf" in schema:
            (schema,) = [part for part in schema["anyOf"] if part != {"type": "null"}]
        found.append({"name": field.encode_name, "in": "query", "required": field.required, "schema": schema})
    for name, explanation in route.headers.items():
        if name in HTTP_OWN:
            continue
        schema = {"type": "string"}
        if name == "Idempotency-Key":
            schema = {"type": "string", "pattern": "^[!-~]{1,200}$"}
        elif name in COUNTS:
            schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1 if name == "Last-Event-ID" else 2**36}
        elif name == "Content-Encoding":
            schema = {"type": "string", "enum": ["identity", "gzip"]}
        found.append(
            {
                "name": name, "in": "header", "required": name in REQUIRED_HEADERS, "schema": schema,
                "description": explanation,
            }
        )  # fmt: skip
    return found


def _body(route: Route) -> dict[str, Any]:
    if route.body is bytes:
        # No bytes are bytes too: the empty blob, a piece of log without news.
        return {"required": False, "content": {RAW: {"schema": {"type": "string", "format": "binary"}}}}
    if route.body is Any:
        return {"required": True, "content": {JSON: {"schema": {"$ref": f"{SCHEMAS}JobFile"}}}}
    return {"required": not route.body_optional, "content": _content(route.body)}


def _answer(answer: Answer) -> dict[str, Any]:
    written: dict[str, Any] = {"description": answer.meaning}
    if answer.headers:
        written["headers"] = _headers(answer.headers)
    if answer.body is not None:
        written["content"] = {
            kind: _content(answer.body)[JSON] if kind == JSON else {"schema": {"type": "string"}}
            for kind in answer.media
        }
    return written


def _content(kind: Any) -> dict[str, Any]:
    schema = {"type": "object"} if kind is dict else {"$ref": f"{SCHEMAS}{kind.__name__}"}
    return {JSON: {"schema": schema}}


def _headers(headers: Any) -> dict[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()}
