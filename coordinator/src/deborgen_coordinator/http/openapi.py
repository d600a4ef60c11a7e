"""The contract as OpenAPI 3.1, generated from the route table and from the types that decode the requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from deborgen_coordinator.http.routes import Route
from deborgen_shared import headers
from deborgen_shared import messages as m
from deborgen_shared.calls import JSON, PATH_NAMES, RAW, Answer, Call, Nothing
from deborgen_shared.errors import Code
from deborgen_shared.jobfile import json_schema

SCHEMAS = "#/components/schemas/"
#: Headers without which a request is refused.
REQUIRED_HEADERS = {headers.UPLOAD_OFFSET}
#: Headers that OpenAPI ignores if they are listed as parameters.
NOT_PARAMETERS = {headers.ACCEPT, headers.CONTENT_TYPE, headers.AUTHORIZATION}
#: Headers whose values are not arbitrary text.
HEADER_SCHEMAS: dict[str, dict[str, Any]] = {
    headers.IDEMPOTENCY_KEY: {"type": "string", "pattern": "^[!-~]{1,200}$"},
    headers.UPLOAD_OFFSET: {"type": "integer", "minimum": 0, "maximum": 2**36},
    headers.UPLOAD_LENGTH: {"type": "integer", "minimum": 0, "maximum": 2**36},
    headers.LAST_EVENT_ID: {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
    headers.CONTENT_ENCODING: {"type": "string", "enum": ["identity", "gzip"]},
}


def document(routes: Iterable[Route], version: str) -> dict[str, object]:
    """The OpenAPI document."""
    routes = list(routes)
    types = _types(routes)
    _, components = msgspec.json.schema_components(types, ref_template=SCHEMAS + "{name}")
    job, parts = _job_schema()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.call.path, {})[route.call.method.lower()] = _operation(route)
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
    # `m.END` is for Python, where `$` also matches before a final line break. In JSON Schema, `$` alone is enough.
    return json.loads(json.dumps(written).replace(json.dumps(m.END)[1:-1], "$"))  # type: ignore[no-any-return]


def _types(routes: list[Route]) -> list[Any]:
    found: list[Any] = [m.ErrorAnswer]
    for route in routes:
        found += [answer.body for answer in route.call.answers] + [route.call.takes]
    structs = [t for t in found if isinstance(t, type) and issubclass(t, msgspec.Struct)]
    return list(dict.fromkeys(structs))


def _job_schema() -> tuple[dict[str, Any], dict[str, Any]]:
    """The job file's schema as components of this document."""
    text = json.dumps(json_schema.schema(wire=True)).replace('"#/$defs/', f'"{SCHEMAS}JobFile_')
    schema = json.loads(text)
    parts = {f"JobFile_{name}": part for name, part in schema.pop("$defs", {}).items()}
    schema.pop("$schema", None)
    schema.pop("$id", None)
    return schema, parts


def _operation(route: Route) -> dict[str, Any]:
    call, noun = route.call, route.handler.__module__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{noun}_{route.handler.__name__}",
        "tags": [noun],
        "summary": call.summary,
        "responses": {str(answer.status): _answer(answer) for answer in call.answers},
    }
    if call.by:
        operation["description"] = f"For tokens of these roles: {', '.join(sorted(call.by))}."
    else:
        operation["security"] = []
    if parameters := _parameters(call):
        operation["parameters"] = parameters
    if call.takes is not None:
        operation["requestBody"] = _body(call)
    for code in call.refusals:
        status = str(code.status)
        answer = operation["responses"].setdefault(status, {"description": "", "content": _content(m.ErrorAnswer)})
        answer["description"] = ", ".join(filter(None, [answer["description"], str(code)]))
        if code in (Code.SLOW_DOWN, Code.UNAVAILABLE):
            answer["headers"] = _headers({headers.RETRY_AFTER: "seconds after which to try again"})
    return operation


def _parameters(call: Call[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in call.path_names:
        kind = PATH_NAMES[name]
        schema: dict[str, Any] = {"type": "string", "pattern": f"^{kind.pattern}$"}
        if name == "path":
            schema = {"type": "string", "minLength": 1, "maxLength": 1024}
        found.append(_parameter("path", name, True, schema, example=kind.example, description=kind.hint))
    for field in msgspec.structs.fields(call.query):
        schema = msgspec.json.schema(field.type)
        defined = schema.pop("$defs", {})
        if "anyOf" in schema:
            kinds = [part for part in schema["anyOf"] if part != {"type": "null"}]
            schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        if "$ref" in schema:
            schema = {"type": "string", "enum": defined[schema["$ref"].rpartition("/")[2]]["enum"]}
        found.append(_parameter("query", field.encode_name, field.required, schema))
    for name, explanation in call.headers.items():
        if name not in NOT_PARAMETERS:
            schema = HEADER_SCHEMAS.get(name, {"type": "string"})
            required = name in REQUIRED_HEADERS
            found.append(_parameter("header", name, required, schema, description=explanation))
    return found


def _parameter(where: str, name: str, required: bool, schema: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema, **more}


def _body(call: Call[Any]) -> dict[str, Any]:
    if call.takes is bytes:
        # An empty body is valid: the empty blob, or a piece of log without new bytes.
        return {"required": False, "content": {RAW: {"schema": {"type": "string", "format": "binary"}}}}
    if call.takes is Any:
        return {"required": True, "content": {JSON: {"schema": {"$ref": f"{SCHEMAS}JobFile"}}}}
    return {"required": not call.body_optional, "content": _content(call.takes)}


def _answer(answer: Answer[Any]) -> dict[str, Any]:
    written: dict[str, Any] = {"description": answer.meaning}
    if answer.headers:
        written["headers"] = _headers(answer.headers)
    if answer.body is not Nothing:
        written["content"] = {
            kind: _content(answer.body)[JSON] if kind == JSON else {"schema": {"type": "string"}}
            for kind in answer.media
        }
    return written


def _content(kind: Any) -> dict[str, Any]:
    schema = {"type": "object"} if kind is dict else {"$ref": f"{SCHEMAS}{kind.__name__}"}
    return {JSON: {"schema": schema}}


def _headers(explained: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in explained.items()}
