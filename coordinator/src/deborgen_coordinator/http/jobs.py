"""Jobs: show, cancel, explain, and fetch their artifacts."""

from __future__ import annotations

from flask import Response

from deborgen_coordinator.http.files import send_blob
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations.attempts import artifacts
from deborgen_coordinator.operations.jobs import look as jobs
from deborgen_coordinator.operations.jobs import why as explaining
from deborgen_coordinator.operations.runs import cancel
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.queries import ArtifactsQuery, JobsQuery, NoQuery


@serves(contract.LIST_JOBS)
def list_jobs(request: CallRequest[None, JobsQuery]) -> m.Jobs:
    return jobs.list_jobs(request.ctx, request.query)


@serves(contract.GET_JOB)
def get_job(request: CallRequest[None, NoQuery]) -> m.JobDetail:
    return jobs.get_job(request.ctx, *request.job)


@serves(contract.CANCEL_JOB)
def cancel_job(request: CallRequest[m.Cancel, NoQuery]) -> m.CancelAnswer:
    return cancel.cancel_job(request.ctx, request.actor, *request.job, request.body.reason)


@serves(contract.WHY)
def why(request: CallRequest[None, NoQuery]) -> m.Why:
    return explaining.why(request.ctx, *request.job)


@serves(contract.LIST_ARTIFACTS)
def list_artifacts(request: CallRequest[None, ArtifactsQuery]) -> m.Artifacts:
    return artifacts.of_job(request.ctx, *request.job, request.query.attempt)


@serves(contract.GET_ARTIFACT)
def artifact(request: CallRequest[None, ArtifactsQuery]) -> Response:
    found = artifacts.find(request.ctx, *request.job, request.names["path"], request.query.attempt)
    return send_blob(request, found.sha256, found.path)
