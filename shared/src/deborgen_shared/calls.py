"""The parts of an HTTP call. The calls themselves are in `contract`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import JOB, NAME, NUMBER, RUN, SHA256
from deborgen_shared.queries import NoQuery, Query
from deborgen_shared.states import Role

T_co = TypeVar("T_co", covariant=True)

JSON = "application/json"
RAW = "application/octet-stream"


#: Names in paths that may contain slashes.
LONG_NAMES = ("path", "image")


@dataclass(frozen=True)
class Answer(Generic[T_co]):
    """One possible answer to a call: its status, its meaning, and the type of its body (a message or raw bytes)."""

    status: int
    meaning: str
    body: type[T_co]
    media: tuple[str, ...] = (JSON,)
    headers: Mapping[str, str] = field(default_factory=dict)


#: The body type of an answer without a body.
Nothing = type(None)


@dataclass(frozen=True)
class Call(Generic[T_co]):
    """One call of the contract: who may make it, its request, its answers, and how it can be refused."""

    method: str
    path: str
    by: frozenset[Role]
    summary: str
    #: The usual answer.
    gives: Answer[T_co]
    #: Further answers that are not refusals.
    or_gives: tuple[Answer[Any], ...] = ()
    #: A message, `Any` for a job file, `bytes` for a raw body, or None.
    takes: Any = None
    body_optional: bool = False
    query: type[Query] = NoQuery
    #: The coordinator's setting that limits the body.
    limit: str = "max_document"
    #: The request headers that the call understands, each with an explanation.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Whether it writes to the coordinator's disk. Such a call is refused while the disk is full.
    writes_to_disk: bool = False
    #: Refusals of this call in particular. `refusals` adds the general ones.
    refuses: tuple[Code, ...] = ()

    @property
    def answers(self) -> tuple[Answer[Any], ...]:
        return (self.gives, *self.or_gives)

    @property
    def path_names(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def refusals(self) -> list[Code]:
        """The codes of all possible refusals, in the order of the table of codes."""
        codes = {Code.MALFORMED, Code.SLOW_DOWN, Code.UNAVAILABLE, *self.refuses}
        if self.by:
            codes |= {Code.UNAUTHENTICATED, Code.FORBIDDEN}
        if self.path_names:
            codes.add(Code.NOT_FOUND)
        if self.takes is not None:
            codes |= {Code.LENGTH_REQUIRED, Code.REQUEST_TIMEOUT, Code.TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE}
        return [code for code in Code if code in codes]

    def url(self, query: Query | None = None, /, **names: object) -> str:
        """The path with its names filled in, followed by the query."""
        path = self.path
        for name in self.path_names:
            path = path.replace(f"{{{name}}}", quote(str(names[name]), safe="/" if name in LONG_NAMES else ""))
        pairs = query.pairs() if query is not None else []
        return f"{path}?{urlencode(pairs)}" if pairs else path


@dataclass(frozen=True)
class PathName:
    """A variable part of a path: its pattern, how its text is read, and a hint for text that does not match."""

    pattern: str
    read: Callable[[str], Any]
    hint: str
    example: str

    def parse(self, text: str) -> Any:
        if not re.fullmatch(self.pattern, text, re.ASCII):
            raise Refusal(Code.NOT_FOUND, f"there is nothing named {text[:100]!r} here", self.hint)
        return self.read(text)


#: A job's id: the number of its run, and its index in the run.
JobId = tuple[int, int]

#: The SHA-256 of `hello`, for examples.
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def _read_job(text: str) -> JobId:
    run, _, index = text.partition(".")
    return int(run), int(index)


PATH_NAMES: dict[str, PathName] = {
    "run": PathName(RUN, int, "a run is named by its number, for example 42", "1"),
    "job": PathName(JOB, _read_job, "a job is named by run and index, for example 42.7", "1.1"),
    "number": PathName(NUMBER, int, "attempts are numbered from 1", "1"),
    "name": PathName(NAME, str, "a worker's name has letters, digits, dots, dashes and underscores", "desk-3"),
    "sha256": PathName(SHA256, str, "a blob is named by its SHA-256 in 64 lower-case hexadecimal digits", HELLO),
    "secret": PathName(
        r"[A-Za-z_][A-Za-z0-9_]{0,127}", str, "a secret is named like an environment variable", "LICENSE_KEY"
    ),
    "cursor": PathName(NAME, str, "a cursor's name has letters, digits, dots, dashes and underscores", "rabbitmq"),
    "image": PathName(
        r"[a-z0-9][A-Za-z0-9._/-]{0,290}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?",
        str,
        "an image is named by its name and tag, as in the list of images",
        "solver:1",
    ),
    "token": PathName(r"[A-Za-z0-9]{1,64}", str, "a token is named by its id, as in the list of tokens", "4f2a"),
    "path": PathName(r"[^\0]{1,1024}", str, "an artifact is named by its path", "out/plot.png"),
}
