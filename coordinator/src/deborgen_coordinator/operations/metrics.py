"""The coordinator's health, and its metrics for Prometheus.

Gauges come from the database; counters and histograms belong to this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from deborgen_shared.states import State

from ..storage import lease_clock, runs, workers
from ..storage.database import Row
from ..storage.transactions import EVENT_COLUMNS

if TYPE_CHECKING:
    from .context import Context

BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 86400.0)
OLD_STATE, NEW_STATE = EVENT_COLUMNS.index("old_state"), EVENT_COLUMNS.index("new_state")

# The creation time of every counter would be the start of this process, which is of no use.
disable_created_metrics()  # type: ignore[no-untyped-call]


class CoordinatorMetrics:
    """Metrics are counted after the commit, so that undone work is never counted."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.online = Gauge("deborgen_workers_online", "Workers that are online.", registry=own)
        self.jobs = Gauge("deborgen_jobs", "Jobs by state.", ["state"], registry=own)
        self.damaged = Gauge("deborgen_database_damaged", "1 once the database was found damaged.", registry=own)
        self.store_failing = Gauge(
            "deborgen_object_store_failing", "1 if the last call to the object store failed.", registry=own
        )
        self.lease_expired = Counter("deborgen_lease_expired", "Leases that expired.", registry=own)
        self.job_retries = Counter("deborgen_job_retries", "Jobs queued again.", registry=own)
        self.stale_results = Counter("deborgen_stale_results", "Results refused as stale.", registry=own)
        self._waits = Histogram(
            "deborgen_queue_wait_seconds",
            "Seconds from the submission of a job to its claim.",
            registry=own,
            buckets=BUCKETS,
        )
        self._runs = Histogram("deborgen_run_seconds", "Seconds that attempts ran.", registry=own, buckets=BUCKETS)

    def count_events(self, events: list[Row]) -> None:
        """Count the events of a commit: each job that goes back into the queue is one retry."""
        for event in events:
            if event[NEW_STATE] == State.QUEUED and event[OLD_STATE] == State.RUNNING:
                self.job_retries.inc()

    def observe_waits(self, seconds: list[float]) -> None:
        for value in seconds:
            self._waits.observe(max(0.0, value))

    def observe_runs(self, seconds: list[float]) -> None:
        for value in seconds:
            self._runs.observe(value)


def exposition(ctx: Context) -> bytes:
    """All metrics in the text format of Prometheus."""
    online, jobs = ctx.store.read(lambda reader: (workers.count_online(reader), runs.count_jobs(reader)))
    ctx.metrics.online.set(online)
    ctx.metrics.damaged.set(bool(ctx.store.damage))
    ctx.metrics.store_failing.set(bool(ctx.blobs.trouble))
    for state, count in jobs.items():
        ctx.metrics.jobs.labels(state).set(count)
    return generate_latest(ctx.metrics.registry)


def check_health(ctx: Context) -> None:
    """Raise if the database cannot be written."""
    ctx.store.write(lease_clock.check_writable)
