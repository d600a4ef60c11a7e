"""Recording what happened: in the history with the change itself, and in the log once that is committed."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from .. import ids
from ..storage.database import Row
from ..storage.transactions import Tx
from .context import Actor

log = logging.getLogger("deborgen.history")
_encode = msgspec.json.Encoder().encode

#: A line of the log has at most this many characters of an event's data. The history has all of it.
LOGGED = 1000


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


def log_committed(events: list[Row]) -> None:
    """Write what was recorded to the log, once it is committed: a line an event, with the names it is about.

    One record carries the lines of a whole commit, because a busy coordinator writes thousands a second.
    """
    if log.isEnabledFor(logging.INFO):
        log.info("", extra={"lines": [_line(event) for event in events]})


def _line(event: Row) -> tuple[str, dict[str, Any]]:
    _, type_, key, attempt, worker, actor, old, new, data = event
    named: dict[str, Any] = {}
    if key is not None:
        run, index = key >> ids.SHIFT, key & ids.MOST_JOBS
        named["run"] = run
        if index:
            named["job"] = f"{run}.{index}"
            if attempt is not None:
                named["attempt"] = named["lease"] = f"{run}.{index}/{attempt}"
    if worker is not None:
        named["worker"] = worker
    named["actor"] = actor
    if old is not None:
        named["old_state"] = old
    if new is not None:
        named["new_state"] = new
    if data is not None:
        named["data"] = data if len(data) <= LOGGED else f"{data[:LOGGED]}…"
    return type_, named
