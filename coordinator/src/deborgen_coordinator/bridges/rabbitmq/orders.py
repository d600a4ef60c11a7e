"""A message becomes an order: a job file with its idempotency key and origin. Or it is refused, with its problems."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any, NamedTuple

from deborgen_shared import strict_json
from deborgen_shared.jobfile.loader import compose
from deborgen_shared.jobfile.problems import JobFileInvalid
from deborgen_shared.jobfile.reading import parse
from deborgen_shared.messages import Origin

#: The header that names the run.
NAME_HEADER = "deborgen-name"
#: The header in which a dead letter says what is wrong with it.
PROBLEMS_HEADER = "deborgen-problems"
#: Headers that are not the publisher's own: RabbitMQ adds the first kind, and this bridge the other.
_ADDED = ("x-", PROBLEMS_HEADER)
#: The properties by which messages without `message_id` differ. RabbitMQ changes none of them.
_OWN = ("content_type", "correlation_id", "reply_to", "timestamp", "type", "user_id", "app_id", "priority")

_JSON = re.compile(r"(application|text)/([\w.-]+\+)?json")
_YAML = re.compile(r"(application|text)/(x-)?([\w.-]+\+)?yaml")
_UNSAID = frozenset({"", "application/octet-stream", "text/plain"})
#: A key that the coordinator accepts as it is.
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class Order(NamedTuple):
    """`first` has, for each step that can start at once, what it needs of a worker, and the index of its first job."""

    key: str
    document: Any
    origin: Origin
    first: tuple[tuple[str, int], ...]


class NeverAJob(Exception):
    """A message that cannot be read as a job file. Each problem is `{"path", "message", "hint"}`."""

    def __init__(self, problems: list[dict[str, str]]) -> None:
        super().__init__(problems[0]["message"])
        self.problems = problems


def problem(message: str, hint: str = "", path: str = "") -> dict[str, str]:
    return {"path": path, "message": message, "hint": hint}


def read(body: bytes, properties: Any, bridge: str) -> Order:
    """The order in a message, or `NeverAJob`."""
    document = _document(body, properties)
    name = (properties.headers or {}).get(NAME_HEADER)
    if name is not None and isinstance(document, dict):
        document["name"] = name if isinstance(name, str) else repr(name)
    try:
        document = strict_json.parse(json.dumps(document, allow_nan=False).encode())
    except (strict_json.Unreadable, ValueError) as error:
        raise NeverAJob([problem(f"the job file {error}")]) from None
    origin = Origin(bridge=bridge, correlation_id=_text(properties.correlation_id), reply_to=_text(properties.reply_to))
    return Order(key_of(body, properties), document, origin, _first_jobs(document))


def key_of(body: bytes, properties: Any) -> str:
    """The same for a message that is delivered again, and different for another message.

    Without a `message_id`, messages are the same if their bodies and their publishers' own properties are.
    """
    if properties.message_id:
        told = _text(properties.message_id) or ""
        return told if _KEY.fullmatch(told) else f"id-{hashlib.sha256(told.encode()).hexdigest()}"
    own = {name: value for name in _OWN if (value := getattr(properties, name)) is not None}
    headers = {name: value for name, value in (properties.headers or {}).items() if not name.startswith(_ADDED)}
    whole = {"body": base64.b64encode(body).decode(), "properties": own, "headers": headers}
    return "message-" + hashlib.sha256(json.dumps(whole, sort_keys=True, default=repr).encode()).hexdigest()


def _text(value: Any) -> str | None:
    """A property as text. pika returns bytes for one that is not UTF-8."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _document(body: bytes, properties: Any) -> Any:
    if properties.content_encoding not in (None, "", "identity", "utf-8", "UTF-8"):
        hint = "send the job file as it is, in UTF-8"
        raise NeverAJob([problem(f"the content_encoding {properties.content_encoding!r} is not supported", hint)])
    kind = (properties.content_type or "").partition(";")[0].strip().lower()
    if _JSON.fullmatch(kind):
        return _json(body)
    if kind not in _UNSAID and not _YAML.fullmatch(kind):
        hint = "set it to application/json or application/yaml, or leave it out"
        raise NeverAJob([problem(f"the content_type {properties.content_type!r} is neither JSON nor YAML", hint)])
    if kind in _UNSAID and body.lstrip()[:1] == b"{":
        try:
            return _json(body)
        except NeverAJob:
            pass  # YAML has mappings in braces too, and its message names the line
    return _yaml(body)


def _json(body: bytes) -> Any:
    try:
        return strict_json.parse(body)
    except strict_json.Unreadable as error:
        raise NeverAJob([problem(f"the body {error}")]) from None


def _yaml(body: bytes) -> Any:
    try:
        document = compose(body, "message")
        if not document.problems:
            return document.data
        found = list(document.problems)
    except JobFileInvalid as invalid:
        found = list(invalid.problems)
    raise NeverAJob(
        [
            problem(f"line {each.line}: {each.message}" if each.line else each.message, each.hint, each.path_text)
            for each in found[:100]
        ]
    )


def _first_jobs(document: Any) -> tuple[tuple[str, int], ...]:
    """Empty if this release cannot read the job file. The coordinator decides whether it is valid."""
    try:
        steps = parse(document, wire=True).steps
    except JobFileInvalid:
        return ()
    found, index = [], 1
    for step in steps:
        if not step.needs:
            found.append((step.spec.needs_key(), index))
        index += step.count
    return tuple(found)
