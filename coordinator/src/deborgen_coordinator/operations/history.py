"""The history: log the events of each commit, and let readers page through all events with a cursor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any

from deborgen_shared.messages import Event, Events
from deborgen_shared.queries import EventsQuery

from .. import ids
from ..storage import events
from ..storage.database import Row
from . import views
from .context import Context

log = logging.getLogger("deborgen.history")

#: The log gathers the events of this many seconds: one piece of text costs much less than many small ones.
GATHER_SECONDS = 0.02
#: A log line shows at most this many characters of an event's data.
LOGGED_CHARACTERS = 1000


class HistoryLog:
    """A thread that logs events after their commits, so that no request waits for the log."""

    def __init__(self) -> None:
        self._batches: SimpleQueue[list[Row]] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="history-log", daemon=True)
        self._thread.start()

    def add(self, recorded: list[Row]) -> None:
        self._batches.put(recorded)

    def stop(self) -> None:
        """Log everything that was added, and end the thread."""
        self._stopping.set()
        self._batches.put([])
        self._thread.join()

    def _loop(self) -> None:
        while not (self._stopping.is_set() and self._batches.empty()):
            recorded = [*self._batches.get()]
            self._stopping.wait(GATHER_SECONDS)
            while not self._batches.empty():
                recorded += self._batches.get()
            try:
                log_committed(recorded)
            except Exception:  # a bug must not end the thread: the events would pile up
                log.exception("events could not be logged")


def log_committed(recorded: list[Row]) -> None:
    """Log the events of one or several commits.

    Each event is one line with the names of its run, job and worker. Events that differ only in the job share a line
    that names the span of jobs. All lines are one log record, because a busy coordinator writes thousands of lines per
    second.
    """
    if recorded and log.isEnabledFor(logging.INFO):
        log.info("", extra={"lines": [_line(alike) for alike in _grouped(recorded)]})


def _grouped(recorded: list[Row]) -> Iterable[list[Row]]:
    """The events in groups that differ only in the job. The start times of programs always differ, so they do not
    count."""
    groups: dict[Row, list[Row]] = {}
    for event in recorded:
        _, type_, key, *same = event
        if key is None or not ids.index_of(key):
            same.append(id(event))  # not about one job: a group of its own
        elif type_ == "attempt.started":
            same[-1] = None  # its data, which is only the start time
        groups.setdefault((type_, key and ids.run_of(key), *same), []).append(event)
    return groups.values()


def _line(alike: list[Row]) -> tuple[str, dict[str, Any]]:
    _, type_, key, number, worker, actor, old, new, data = alike[0]
    run, job, attempt = _names(key, number)
    if data is not None and len(data) > LOGGED_CHARACTERS:
        data = f"{data[:LOGGED_CHARACTERS]}…"
    named = {"run": run, "job": job, "attempt": attempt, "lease": attempt}
    if len(alike) > 1:
        named = {"run": run, "jobs": ids.names_in_spans([event[2] for event in alike]), "attempt_number": number}
        data = None if type_ == "attempt.started" else data
    named |= {"worker": worker, "actor": actor, "old_state": old, "new_state": new, "data": data}
    return type_, {name: value for name, value in named.items() if value is not None}


def _names(key: int | None, number: int | None) -> tuple[int | None, str | None, str | None]:
    """The names of an event's run, job and attempt. The key of a whole run has the index 0."""
    if key is None:
        return None, None, None
    run, index = ids.run_of(key), ids.index_of(key)
    if not index:
        return run, None, None
    return run, f"{run}.{index}", f"{run}.{index}/{number}" if number is not None else None


def list_events(ctx: Context, q: EventsQuery) -> Events:
    """Events with a number above `after`, oldest first, or with a number below `before`, newest first; `next` is the
    cursor of the next page."""
    key = ids.parse_attempt(f"{q.job}/1")[0] if q.job else None
    after = q.after if isinstance(q.after, int) else 0
    rows = ctx.store.read(
        lambda reader: events.select(reader, span=(after, q.before), run=q.run, job=key, worker=q.worker, limit=q.limit)
    )
    items = []
    for seq, time, type_, job_id, number, worker_name, actor, old, new, data in rows:
        about_run, about_job, about_attempt = _names(job_id, number)
        items.append(
            Event(
                seq=seq,
                time=views.when(time),
                type=type_,
                run=about_run,
                job=about_job,
                attempt=about_attempt,
                worker=worker_name,
                actor=actor,
                old_state=old,
                new_state=new,
                data=views.loads(data) or {},
            )
        )
    return Events(items=items, next=str(items[-1].seq) if len(items) == q.limit else None)


def newest(ctx: Context) -> int:
    """The number of the newest event."""
    return ctx.store.read(events.newest)
