"""Which workers could ever run a job. The workers are read at most once per second, so answers may be slightly old."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
from cachetools import TTLCache, cachedmethod

from deborgen_shared.states import WORKING, WorkerState

from ..clock import Clock
from ..placement import Amounts, MachineOffer, Needs, lacks
from ..storage import workers
from ..storage.rows import WorkerRow
from ..storage.store import Store
from .spec_cache import decode_needs

KEEP_SECONDS = 1.0
#: The workers at one moment, and the warnings that were computed for them, by the needs of a job.
Snapshot = tuple[list[tuple[WorkerRow, MachineOffer]], dict[str, str]]


def amounts(text: str) -> Amounts:
    data = msgspec.json.decode(text)
    return Amounts(
        float(data.get("cpus", 0)), int(data.get("memory", 0)), int(data.get("gpus", 0)), data.get("disk") or None
    )


def machine(row: WorkerRow) -> MachineOffer:
    return MachineOffer(msgspec.json.decode(row.labels), amounts(row.capacity))


class WorkerFit:
    """Which workers could ever run a job with given needs."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: TTLCache[Any, Snapshot] = TTLCache(1, KEEP_SECONDS, clock.steady)

    def warning(self, needs_key: str) -> str:
        """The warning for somebody who submits such a job; empty if some worker can run it."""
        with self._lock:
            machines, warnings = self._snapshot()
            if needs_key not in warnings:
                warnings[needs_key] = _warning(machines, decode_needs(needs_key))
            return warnings[needs_key]

    def another_could(self, needs: Needs, than: str) -> bool:
        """Whether another worker could run such a job now, or as soon as it has room."""
        with self._lock:
            machines, _ = self._snapshot()
            return any(
                row.name != than and row.online and row.state in WORKING and not (row.paused or row.drain)
                for row, candidate in machines
                if not lacks(candidate, needs)
            )

    @cachedmethod(lambda self: self._kept)
    def _snapshot(self) -> Snapshot:
        rows = self._store.read(workers.list_all)
        return [(row, machine(row)) for row in rows if row.state is not WorkerState.LEFT], {}


def _warning(machines: list[tuple[WorkerRow, MachineOffer]], needs: Needs) -> str:
    if not machines:
        return "no worker has joined yet; the jobs stay queued until one does"
    reasons = []
    for row, candidate in machines:
        reason = lacks(candidate, needs)
        if not reason:
            return ""
        reasons.append(f"{row.name} {reason}")
    more = f" (and {len(reasons) - 3} more)" if len(reasons) > 3 else ""
    return "no worker can run this: " + "; ".join(reasons[:3]) + more
