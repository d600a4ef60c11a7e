"""The coordinator itself: its health, its metrics and its contract."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from flask import Response

from deborgen_coordinator.http.openapi import document
from deborgen_coordinator.http.routes import ROUTES, CallRequest, serves
from deborgen_coordinator.operations import metrics
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.jobfile.json_schema import schema
from deborgen_shared.queries import NoQuery

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@cache
def own_version() -> str:
    return version("deborgen-coordinator")


# The contract and the schema stay the same while the coordinator runs, and take long to compute.


@cache
def _contract() -> dict[str, object]:
    return document(ROUTES, own_version())


@cache
def _job_schema() -> dict[str, object]:
    return schema(wire=True)


@serves(contract.HEALTH)
def get_health(request: CallRequest[None, NoQuery]) -> m.Health:
    metrics.check_health(request.ctx)
    blobs = request.ctx.blobs
    trouble = "the object store does not answer, or refuses" if blobs.trouble else ""
    return m.Health(status="ok", version=own_version(), artifact_store=blobs.kind, artifact_store_trouble=trouble)


@serves(contract.METRICS)
def get_metrics(request: CallRequest[None, NoQuery]) -> Response:
    return Response(metrics.exposition(request.ctx), 200, content_type=PROMETHEUS)


@serves(contract.OPENAPI)
def get_openapi(request: CallRequest[None, NoQuery]) -> dict[str, object]:
    return _contract()


@serves(contract.JOB_SCHEMA)
def get_job_schema(request: CallRequest[None, NoQuery]) -> dict[str, object]:
    return _job_schema()
