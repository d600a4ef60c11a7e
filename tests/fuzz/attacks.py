"""Requests that are almost right: a valid draft, spoiled in up to three places, as the bytes of one HTTP request."""

from __future__ import annotations

import gzip
import random
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from deborgen_shared import contract, headers
from deborgen_shared.calls import JSON, RAW, Call
from deborgen_shared.contract import CALLS
from deborgen_shared.states import Role
from fuzz import hostile
from fuzz.drafts import Draft, draft
from fuzz.known import Known

#: How many of a request's parts are spoiled.
HOW_OFTEN = (0, 0, 0, 0, 1, 1, 1, 1, 2, 3)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "BREW", "PROPFIND")
TYPES = (
    JSON, RAW, "application/json; charset=utf-8", "application/json;charset=\xff", "APPLICATION/JSON",
    "application/jsonx", "", "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded",
    "application/json, text/plain",
)  # fmt: skip
RANGES = (
    "bytes=0-0", "bytes=-1", "bytes=5-", "bytes=9-2", "bytes=0-1,3-4", "bytes=" + "0-," * 200,
    "bytes=99999999999999999999-", "bytes=-0", "items=0-1", "bytes", "bytes=a-b", "bytes= 0 - 1", "bytes=0-0" * 100,
    "\xff",
)  # fmt: skip
#: Headers whose values some part of the coordinator reads.
READ = (
    headers.ACCEPT, headers.ACCEPT_ENCODING, headers.AUTHORIZATION, headers.CONTENT_ENCODING, headers.CONTENT_TYPE,
    headers.IDEMPOTENCY_KEY, headers.IF_NONE_MATCH, headers.IF_RANGE, headers.LAST_EVENT_ID, headers.RANGE,
    headers.SESSION, headers.UPLOAD_LENGTH, headers.UPLOAD_OFFSET, headers.USER_AGENT, "Host", "Origin", "Cookie",
    "X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "Expect", "Upgrade", "Connection", "Date", "If-Match",
    "If-Modified-Since",
)  # fmt: skip
#: Long documents that are always the same; and the call after which a worker has nothing more to say.
SELDOM = (contract.OPENAPI, contract.JOB_SCHEMA, contract.METRICS, contract.LEAVE)
BOMB = gzip.compress(b"\0" * 20_000_000)


class Attack(NamedTuple):
    """One request as it is sent."""

    data: bytes
    call: Call[Any]
    is_head: bool
    #: The role of its token; None if it has none, or one that nobody issued.
    role: Role | None
    #: Whether its path and its method are those of the call.
    is_addressed: bool
    #: Its body before it was encoded.
    body: Any


class Attacker:
    """Makes the requests of one role. The seed and the number of a request decide how it is spoiled."""

    def __init__(self, seed: str, role: Role, tokens: dict[Role, str], known: Known) -> None:
        self._seed, self._role, self._tokens, self.known = seed, role, tokens, known
        # Somebody else's calls are tried too.
        own = [call for call in CALLS if role in call.by and call not in SELDOM]
        self._calls = own * 12 + list(CALLS)

    def attack(self, number: int) -> Attack:
        rng = random.Random(f"{self._seed} {number}")
        call = rng.choice(self._calls)
        made = draft(rng, self.known, call)
        method, path, role = call.method, made.path, self._role
        token: str | None = self._tokens[role]
        for _ in range(rng.choice(HOW_OFTEN)):
            match rng.randrange(12):
                case 0:
                    made.path = _spoiled_path(rng, made.path)
                case 1:
                    made.query = _spoiled_query(rng, self.known, made.query)
                case 2 | 3:
                    made.headers = _spoiled_headers(rng, made.headers)
                case 4 if rng.random() < 0.3:
                    method = rng.choice(METHODS)
                case 5 if rng.random() < 0.5:
                    role = rng.choice(list(Role))
                    token = self._tokens[role]
                case 6 if rng.random() < 0.3:
                    token = None if rng.random() < 0.5 else rng.choice((hostile.text(rng), self._tokens[role][:-1]))
                case _:
                    made.body = _spoiled_body(rng, made)
        data = _sent(rng, method, made, token)
        is_known = token in self._tokens.values() and not any(name == headers.AUTHORIZATION for name, _ in made.headers)
        addressed = method == call.method and made.path == path
        return Attack(data, call, method == "HEAD", role if is_known else None, addressed, made.body)


def _sent(rng: random.Random, method: str, made: Draft, token: str | None) -> bytes:
    body = made.body
    if body is not None and not isinstance(body, bytes):
        body = hostile.encoded(rng, body)
    query = "&".join(f"{quote_plus(name)}={quote_plus(value, errors='replace')}" for name, value in made.query)
    path = quote(made.path, safe="/%?:=&;,.~+!*'()[]@", errors="replace")
    lines = [f"{method} {path}{'?' if query else ''}{query} HTTP/1.1", "Host: 127.0.0.1"]
    if token is not None:
        lines.append(f"{headers.AUTHORIZATION}: Bearer {_one_line(token)}")
    lines += [f"{name}: {_one_line(value)}" for name, value in made.headers]
    if body is not None:
        lines.append(f"{headers.CONTENT_LENGTH}: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", errors="replace") + (body or b"")


def _one_line(text: str) -> str:
    """Text for a header. What a header with a line break does is the matter of the raw sockets."""
    return text.replace("\r", " ").replace("\n", " ").replace("\0", " ")


def _spoiled_path(rng: random.Random, path: str) -> str:
    parts = path.split("/")
    place = rng.randrange(len(parts) > 1, len(parts))
    match rng.randrange(6):
        case 0:
            parts[place] = quote(hostile.text(rng), safe="", errors="replace")[:6000]
        case 1:
            parts[place] = rng.choice(
                ("%00", "%ff", "%", "%2", "%zz", "%2e%2e", "..", ".", "%2f", "%25", "%C0%80", ";a=b")
            )
        case 2:
            parts[place] = str(rng.choice(hostile.NUMBERS))
        case 3:
            parts.insert(place, rng.choice(("", "v1", "..", "x")))
        case 4:
            parts[place] += rng.choice(("/", "%0a", "%20", ".", "?", "%3f", "1" * 20))
        case _:
            del parts[place]
    return "/".join(parts) or "/"


def _spoiled_query(rng: random.Random, known: Known, query: list[tuple[str, str]]) -> list[tuple[str, str]]:
    name = (
        rng.choice(query)[0] if query and rng.random() < 0.7 else rng.choice(("limit", "cursor", "after", "run", "é"))
    )
    cursor = rng.choice(known.cursors)
    value = rng.choice((hostile.text(rng), str(rng.choice(hostile.NUMBERS)), cursor + "1", cursor[:-1], cursor[::-1]))
    kept = [pair for pair in query if pair[0] != name or rng.random() < 0.1]
    return [*kept, (name, value)] * rng.choice((1, 1, 1, 1, 2, 30))


def _spoiled_headers(rng: random.Random, given: list[tuple[str, str]]) -> list[tuple[str, str]]:
    name = rng.choice(given)[0] if given and rng.random() < 0.4 else rng.choice(READ)
    value = rng.choice((hostile.text(rng), str(rng.choice(hostile.NUMBERS)), rng.choice(RANGES), rng.choice(TYPES)))
    if name in (headers.CONTENT_TYPE, headers.CONTENT_ENCODING) and rng.random() < 0.7:
        value = rng.choice((*TYPES, "gzip", "GZIP", "br", "gzip, gzip", "identity", "deflate"))
    kept = [pair for pair in given if pair[0] != name or rng.random() < 0.2]
    return [*kept, (name, value)] * rng.choice((1, 1, 1, 1, 1, 2, 20))


def _spoiled_body(rng: random.Random, made: Draft) -> Any:
    if made.call.takes is None:
        return rng.choice((b"", b"{}", b"x" * 70_000)) if rng.random() < 0.2 else made.body
    if isinstance(made.body, bytes):
        cut = made.body[: rng.randrange(len(made.body) + 1)]
        return rng.choice((b"", cut, made.body + b"x", rng.randbytes(50), gzip.compress(made.body), BOMB))
    return hostile.mutated(rng, made.body)
