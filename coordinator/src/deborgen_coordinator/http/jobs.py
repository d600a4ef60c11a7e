"""Jobs: look, cancel, ask why, and fetch what they left."""

from __future__ import annotations

import msgspec
from flask import Response

from deborgen_coordinator.http.files import FILE_ANSWERS, FILE_HEADERS, FILE_REFUSALS, send_blob
from deborgen_coordinator.http.query import Cursor, Limit, RunNumber, StateName
from deborgen_coordinator.http.routes import PEOPLE, SUBMITTERS, Answer, Call, NoQuery, route
from deborgen_coordinator.operations import jobs, runs
from deborgen_shared import messages as m
from deborgen_shared.errors import Code


class JobsQuery(msgspec.Struct, frozen=True):
    state: StateName | None = None
    run: RunNumber | None = None
    worker: m.Name | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


@route(
    "GET", "/v1/jobs", roles=PEOPLE, query=JobsQuery, answers={200: Answer("jobs", m.Jobs)},
    refusals=(Code.NOT_FOUND,),
    summary="Jobs of all runs, by state, run or worker.",
)  # fmt: skip
def list_jobs(call: Call[None, JobsQuery]) -> m.Jobs:
    q = call.query
    return runs.list_jobs(call.ctx, run=q.run, state=q.state, worker=q.worker, cursor=q.cursor, limit=q.limit)


@route(
    "GET", "/v1/jobs/{job}", roles=PEOPLE, answers={200: Answer("the job", m.JobDetail)},
    summary="One job, with its specification, its artifacts and all its attempts.",
)  # fmt: skip
def get_job(call: Call[None, NoQuery]) -> m.JobDetail:
    return jobs.get_job(call.ctx, *call.job)


@route(
    "POST", "/v1/jobs/{job}/cancel", roles=SUBMITTERS, body=m.Cancel, body_optional=True,
    answers={200: Answer("what it meant", m.CancelAnswer)},
    summary="Cancel one job. Queued, it will never start; running, its worker is told to stop it.",
)  # fmt: skip
def cancel_job(call: Call[m.Cancel, NoQuery]) -> m.CancelAnswer:
    return jobs.cancel_job(call.ctx, call.actor, *call.job, call.body.reason)


@route(
    "GET", "/v1/jobs/{job}/why", roles=PEOPLE, answers={200: Answer("the reasons", m.Why)},
    summary="Why a job waits, one line a worker, or why it ended as it did.",
)  # fmt: skip
def why(call: Call[None, NoQuery]) -> m.Why:
    return jobs.why(call.ctx, *call.job)


@route(
    "GET", "/v1/jobs/{job}/artifacts", roles=PEOPLE, answers={200: Answer("the artifacts", m.Artifacts)},
    summary="What a job left: paths, digests and sizes.",
)  # fmt: skip
def artifacts(call: Call[None, NoQuery]) -> m.Artifacts:
    return jobs.artifacts(call.ctx, *call.job)


@route(
    "GET", "/v1/jobs/{job}/artifacts/{path}", roles=PEOPLE, headers=FILE_HEADERS, answers=FILE_ANSWERS,
    refusals=FILE_REFUSALS, summary="The bytes of one artifact.",
)  # fmt: skip
def artifact(call: Call[None, NoQuery]) -> Response:
    found = jobs.artifact(call.ctx, *call.job, call.names["path"])
    return send_blob(call, found.sha256, found.path)
