"""Recording what happened: one function for the history, and one line in the log with the same names."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from .. import ids
from ..storage.transactions import Tx
from .context import Actor

log = logging.getLogger("deborgen.history")
_encode = msgspec.json.Encoder().encode


def record(
    tx: Tx,
    now: float,
    type_: str,
    actor: Actor,
    *,
    run: int | None = None,
    job: int | None = None,
    attempt: int | None = None,
    worker: str | None = None,
    old: str | None = None,
    new: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Append an event, in the transaction of what it tells of."""
    key = job if job is not None else ids.key(run, 0) if run is not None else None
    text = _encode(data).decode() if data else None
    tx.record((now, type_, key, attempt, worker, str(actor), old, new, text))
    if log.isEnabledFor(logging.INFO):
        log.info(type_, extra=fields(job=job, run=run, attempt=attempt, worker=worker, actor=str(actor), data=data))


def fields(
    *, job: int | None = None, run: int | None = None, attempt: int | None = None, **others: Any
) -> dict[str, Any]:
    """The names that every line of the log carries, where they apply. The lease is the attempt's."""
    named: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
    if job is not None:
        named["run"] = ids.run_of(job)
        named["job"] = ids.name(job)
        if attempt is not None:
            named["attempt"] = named["lease"] = ids.attempt_name(job, attempt)
    elif run is not None:
        named["run"] = run
    return named
