"""Numbers for Prometheus: gauges from the database, counters and histograms of this process."""

from __future__ import annotations

import bisect
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deborgen_shared.states import State

from ..storage import statistics
from ..storage.database import Row
from ..storage.transactions import EVENT_COLUMNS

if TYPE_CHECKING:
    from .context import Context

BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 86400.0)


OLD_STATE, NEW_STATE = EVENT_COLUMNS.index("old_state"), EVENT_COLUMNS.index("new_state")
REQUEUED = (State.RUNNING, State.QUEUED)


@dataclass
class Histogram:
    """`counts[i]` values were at most `bounds[i]` and above the bound before it; the last count is of all above."""

    bounds: tuple[float, ...] = BUCKETS
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        return Histogram(self.bounds, list(self.counts), self.total)


class Metrics:
    """Counted after the commit, so that what was undone is never counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._waits = Histogram()
        self._runs = Histogram()

    def count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counters[name] += by

    def recorded(self, events: list[Row]) -> None:
        """Count what the events of a commit tell: each job that went back into the queue is one retry."""
        retries = sum(1 for event in events if (event[OLD_STATE], event[NEW_STATE]) == REQUEUED)
        if retries:
            self.count("job_retries", retries)

    def waited(self, seconds: list[float]) -> None:
        with self._lock:
            for value in seconds:
                self._waits.add(max(0.0, value))

    def ran(self, seconds: list[float]) -> None:
        with self._lock:
            for value in seconds:
                self._runs.add(value)

    def read(self) -> tuple[Counter[str], Histogram, Histogram]:
        with self._lock:
            return Counter(self._counters), self._waits.copy(), self._runs.copy()


@dataclass(frozen=True)
class Snapshot:
    workers_online: int
    jobs: dict[str, int]
    lease_expired_total: int
    job_retries_total: int
    stale_results_total: int
    queue_wait_seconds: Histogram
    run_seconds: Histogram


def snapshot(ctx: Context) -> Snapshot:
    """All the numbers at one moment."""
    counters, waits, runs = ctx.metrics.read()
    online, jobs = ctx.store.read(statistics.gauges)
    return Snapshot(
        workers_online=online,
        jobs=jobs,
        lease_expired_total=counters["lease_expired"],
        job_retries_total=counters["job_retries"],
        stale_results_total=counters["stale_results"],
        queue_wait_seconds=waits,
        run_seconds=runs,
    )
