"""About the coordinator itself: its health, its numbers and its contract."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import version

from flask import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from deborgen_coordinator.http.openapi import document
from deborgen_coordinator.http.routes import EVERYONE, PEOPLE, ROUTES, Answer, Call, NoQuery, route
from deborgen_coordinator.operations import health, metrics
from deborgen_coordinator.operations.context import Context
from deborgen_shared import jobfile
from deborgen_shared import messages as m
from deborgen_shared.errors import Code

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@cache
def own_version() -> str:
    return version("deborgen-coordinator")


@route(
    "GET", "/health", roles=frozenset(), answers={200: Answer("it is well", m.Health)}, refusals=(Code.UNAVAILABLE,),
    summary="Whether the coordinator can do its work. It needs no token.",
)  # fmt: skip
def get_health(call: Call[None, NoQuery]) -> m.Health:
    health.check(call.ctx)
    return m.Health(status="ok", version=own_version())


@route(
    "GET", "/metrics", roles=PEOPLE, answers={200: Answer("the numbers of now", str, ("text/plain",))},
    summary="Numbers for Prometheus.",
)  # fmt: skip
def get_metrics(call: Call[None, NoQuery]) -> Response:
    registry = CollectorRegistry()
    registry.register(_Numbers(call.ctx))
    return Response(generate_latest(registry), 200, content_type=PROMETHEUS)


@route(
    "GET", "/v1/openapi.json", roles=EVERYONE, answers={200: Answer("the contract", dict)},
    summary="This contract, as OpenAPI.",
)  # fmt: skip
def get_openapi(call: Call[None, NoQuery]) -> dict[str, object]:
    return document(ROUTES, own_version())


@route(
    "GET", "/v1/schema/job.json", roles=EVERYONE, answers={200: Answer("the schema", dict)},
    summary="The JSON Schema of the job file.",
)  # fmt: skip
def get_job_schema(call: Call[None, NoQuery]) -> dict[str, object]:
    return jobfile.schema(wire=True)


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
