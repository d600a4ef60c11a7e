"""Recording what happened: in the history with the change itself, and in the log once that is committed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
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
    """Write what was recorded to the log, once it is committed.

    A line per event, with the names it is about; jobs of a run to which the same happened share a line that names their
    span. One log record carries all lines of a commit, because a busy coordinator writes thousands per second.
    """
    if log.isEnabledFor(logging.INFO):
        log.info("", extra={"lines": [_line(alike) for alike in _grouped(events)]})


def _grouped(events: list[Row]) -> Iterable[list[Row]]:
    """The events, those of several jobs together that differ in the job alone. The moments at which programs began
    always differ: only the history has them."""
    groups: dict[Row, list[Row]] = {}
    for event in events:
        _, type_, key, *same = event
        if key is None or not ids.index_of(key):
            same.append(id(event))
        elif type_ == "attempt.started":
            same[-1] = None
        groups.setdefault((type_, key and ids.run_of(key), *same), []).append(event)
    return groups.values()


def _line(alike: list[Row]) -> tuple[str, dict[str, Any]]:
    _, type_, key, attempt, worker, actor, old, new, data = alike[0]
    named: dict[str, Any] = {}
    if key is not None:
        named["run"] = ids.run_of(key)
        if len(alike) > 1:
            named["jobs"], named["attempt_number"] = ids.spans([event[2] for event in alike]), attempt
            data = None if type_ == "attempt.started" else data
        elif ids.index_of(key):
            named["job"] = ids.name(key)
            if attempt is not None:
                named["attempt"] = named["lease"] = ids.attempt_name(key, attempt)
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
