"""About the coordinator itself: its health, its numbers and its contract."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import version

from flask import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from deborgen_coordinator.http.openapi import document
from deborgen_coordinator.http.routes import ROUTES, Request, serves
from deborgen_coordinator.operations import health, metrics
from deborgen_coordinator.operations.context import Context
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.jobfile.json_schema import schema
from deborgen_shared.queries import NoQuery

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@cache
def own_version() -> str:
    return version("deborgen-coordinator")


@serves(contract.HEALTH)
def get_health(request: Request[None, NoQuery]) -> m.Health:
    health.check(request.ctx)
    return m.Health(status="ok", version=own_version())


@serves(contract.METRICS)
def get_metrics(request: Request[None, NoQuery]) -> Response:
    registry = CollectorRegistry()
    registry.register(_Numbers(request.ctx))
    return Response(generate_latest(registry), 200, content_type=PROMETHEUS)


@serves(contract.OPENAPI)
def get_openapi(request: Request[None, NoQuery]) -> dict[str, object]:
    return document(ROUTES, own_version())


@serves(contract.JOB_SCHEMA)
def get_job_schema(request: Request[None, NoQuery]) -> dict[str, object]:
    return schema(wire=True)


class _Numbers:
    """The numbers of one moment, in the families that Prometheus knows."""

    def __init__(self, ctx: Context) -> None:
        self._now = metrics.snapshot(ctx)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        now = self._now
        yield GaugeMetricFamily("deborgen_workers_online", "Workers that are there.", now.workers_online)
        jobs = GaugeMetricFamily("deborgen_jobs", "Jobs by state.", labels=["state"])
        for state, count in now.jobs.items():
            jobs.add_metric([state], count)
        yield jobs
        yield CounterMetricFamily("deborgen_lease_expired", "Leases that expired.", now.lease_expired_total)
        yield CounterMetricFamily("deborgen_job_retries", "Jobs queued again.", now.job_retries_total)
        yield CounterMetricFamily("deborgen_stale_results", "Results refused as stale.", now.stale_results_total)
        yield _histogram("deborgen_queue_wait_seconds", "From queued to claimed.", now.queue_wait_seconds)
        yield _histogram("deborgen_run_seconds", "From claimed to ended.", now.run_seconds)


def _histogram(name: str, explanation: str, values: metrics.Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, explanation)
    total, buckets = 0, []
    for bound, count in zip([*map(str, values.bounds), "+Inf"], values.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric([], buckets, values.total)
    return family
