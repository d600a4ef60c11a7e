"""Hints that name routes, for people who use the API with curl: one table by code.

Refusals of the operations say nothing about HTTP. A refusal that has no hint gets one from this table. Other clients,
such as the command, have tables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deborgen_coordinator.operations.lookup import Noun, UnknownName
from deborgen_shared import contract, headers
from deborgen_shared.errors import Code, Refusal

#: By code; where something does not exist, also by what it is. Names in braces are filled in from the request's path.
HINTS: dict[Code | tuple[Code, Noun], str] = {
    Code.UNAUTHENTICATED: f"send the header {headers.AUTHORIZATION}: Bearer TOKEN; an admin creates tokens with: "
    "deborgen token create",
    Code.SUPERSEDED: f"register it first: PUT {contract.REGISTER.path}",
    Code.INVALID_JOB: f"PUT each missing file to {contract.PUT_BLOB.path} first",
    (Code.NOT_FOUND, Noun.RUN): f"GET {contract.LIST_RUNS.path} lists them",
    (Code.NOT_FOUND, Noun.LAST_RUN): f"POST {contract.SUBMIT.path} submits one",
    (Code.NOT_FOUND, Noun.JOB): f"GET {contract.LIST_RUN_JOBS.path} lists a run's jobs",
    (Code.NOT_FOUND, Noun.ATTEMPT): f"GET {contract.GET_JOB.path} lists its attempts",
    (Code.NOT_FOUND, Noun.ARTIFACT): f"GET {contract.LIST_ARTIFACTS.path} lists them",
    (Code.NOT_FOUND, Noun.WORKER): f"GET {contract.LIST_WORKERS.path} lists them",
    (Code.NOT_FOUND, Noun.TOKEN): f"GET {contract.LIST_TOKENS.path} lists them",
}


class _Names(dict[str, Any]):
    """The names in a request's path. A name that is not there keeps its braces."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def add_hint(refusal: Refusal, names: Mapping[str, Any] | None = None) -> None:
    """Give the refusal a hint, unless it has one or the table has none for it."""
    if refusal.hint:
        return
    key = (refusal.code, refusal.noun) if isinstance(refusal, UnknownName) else refusal.code
    known = _Names(names or {})
    if "job" in known:
        run, index = known["job"]
        known |= {"run": run, "job": f"{run}.{index}"}
    refusal.hint = HINTS.get(key, "").format_map(known)
