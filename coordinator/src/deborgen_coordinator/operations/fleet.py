"""The fleet as placement sees it, read at most once per second: for decisions where a moment's age does not matter."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
from cachetools import TTLCache, cachedmethod

from deborgen_shared.states import WORKING, WorkerState

from ..clock import Clock
from ..placement import Amounts, Machine, Needs, lacks
from ..storage import workers
from ..storage.rows import WorkerRow
from ..storage.store import Store
from .catalog import decode_needs

KEEP_SECONDS = 1.0
#: The machines at one moment, and what was judged of them by the needs of a job.
Seen = tuple[list[tuple[WorkerRow, Machine]], dict[str, str]]


def amounts(text: str) -> Amounts:
    data = msgspec.json.decode(text)
    return Amounts(
        float(data.get("cpus", 0)), int(data.get("memory", 0)), int(data.get("gpus", 0)), data.get("disk") or None
    )


def machine(row: WorkerRow) -> Machine:
    return Machine(msgspec.json.decode(row.labels), amounts(row.capacity))


class Fleet:
    """Who could ever run what."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: TTLCache[Any, Seen] = TTLCache(1, KEEP_SECONDS, clock.steady)

    def warning(self, needs_key: str) -> str:
        """What to tell somebody who submits such a job; empty if some worker can run it."""
        with self._lock:
            machines, verdicts = self._look()
            if needs_key not in verdicts:
                verdicts[needs_key] = _judge(machines, decode_needs(needs_key))
            return verdicts[needs_key]

    def another_could(self, needs: Needs, than: str) -> bool:
        """Whether a machine other than this one could take such a job now, or as soon as it has room."""
        with self._lock:
            machines, _ = self._look()
            return any(
                row.name != than and row.online and row.state in WORKING and not (row.paused or row.drain)
                for row, candidate in machines
                if not lacks(candidate, needs)
            )

    @cachedmethod(lambda self: self._kept)
    def _look(self) -> Seen:
        rows = self._store.read(workers.list_all)
        return [(row, machine(row)) for row in rows if row.state is not WorkerState.LEFT], {}


def _judge(machines: list[tuple[WorkerRow, Machine]], needs: Needs) -> str:
    if not machines:
        return "no worker has joined yet: the jobs wait until one does"
    reasons = []
    for row, candidate in machines:
        reason = lacks(candidate, needs)
        if not reason:
            return ""
        reasons.append(f"{row.name} {reason}")
    more = f" (and {len(reasons) - 3} more)" if len(reasons) > 3 else ""
    return "no worker can run this: " + "; ".join(reasons[:3]) + more
