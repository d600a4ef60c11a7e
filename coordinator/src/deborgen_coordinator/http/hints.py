"""Hints that name routes, for people who use the API with curl.

Operations know nothing about HTTP. If a refusal has no hint, it gets one from this table, by its code. Other clients,
such as the command, have tables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deborgen_coordinator.operations.lookup import Noun, UnknownName
from deborgen_shared import contract, headers
from deborgen_shared.errors import Code, Refusal

#: By error code, and for unknown names also by noun. Names in braces are filled in from the request's path.
HINTS: dict[Code | tuple[Code, Noun], str] = {
    Code.UNAUTHENTICATED: f"send the header {headers.AUTHORIZATION}: Bearer TOKEN; an admin creates tokens with: "
    "deborgen token create",
    Code.SUPERSEDED: f"register the worker first: PUT {contract.REGISTER.path}",
    Code.INVALID_JOB: f"PUT each missing file to {contract.PUT_BLOB.path} first",
    (Code.NOT_FOUND, Noun.RUN): f"GET {contract.LIST_RUNS.path} lists all runs",
    (Code.NOT_FOUND, Noun.LAST_RUN): f"POST {contract.SUBMIT.path} submits a run",
    (Code.NOT_FOUND, Noun.JOB): f"GET {contract.LIST_RUN_JOBS.path} lists the run's jobs",
    (Code.NOT_FOUND, Noun.ATTEMPT): f"GET {contract.GET_JOB.path} lists the job's attempts",
    (Code.NOT_FOUND, Noun.ARTIFACT): f"GET {contract.LIST_ARTIFACTS.path} lists the job's artifacts",
    (Code.NOT_FOUND, Noun.WORKER): f"GET {contract.LIST_WORKERS.path} lists all workers",
    (Code.NOT_FOUND, Noun.TOKEN): f"GET {contract.LIST_TOKENS.path} lists all tokens",
    (Code.NOT_FOUND, Noun.CURSOR): f"PUT {contract.PUT_CURSOR.path} stores one",
    (Code.NOT_FOUND, Noun.IMAGE): f"GET {contract.LIST_IMAGES.path} lists the images of the pool",
    (Code.NOT_FOUND, Noun.SECRET): f"GET {contract.LIST_SECRETS.path} lists the secrets that you may use",
}


class _Names(dict[str, Any]):
    """The names in a request's path. A hint keeps the braces of names that the path lacks."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def add_hint(refusal: Refusal, names: Mapping[str, Any] | None = None) -> None:
    """Give a refusal without a hint the hint of this table, if there is one."""
    if refusal.hint:
        return
    key = (refusal.code, refusal.noun) if isinstance(refusal, UnknownName) else refusal.code
    known = _Names(names or {})
    if "job" in known:
        run, index = known["job"]
        known |= {"run": run, "job": f"{run}.{index}"}
    refusal.hint = HINTS.get(key, "").format_map(known)
