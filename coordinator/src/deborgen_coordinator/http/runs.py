"""Runs: submit, look, cancel, retry, and their table of results."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from flask import Response

from deborgen_coordinator.http.answers import JSON, Reply
from deborgen_coordinator.http.query import Cursor, Label, Limit, StateName
from deborgen_coordinator.http.routes import PEOPLE, SUBMITTERS, Answer, Call, NoQuery, route
from deborgen_coordinator.operations import runs
from deborgen_shared import messages as m
from deborgen_shared.errors import Code

KEY_HEADER = {"Idempotency-Key": "a word of your own: the same body sent again under it gets the same run"}


class RunsQuery(msgspec.Struct, frozen=True):
    state: StateName | None = None
    submitter: m.Name | None = None
    label: Label | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


class RunJobsQuery(msgspec.Struct, frozen=True):
    state: StateName | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


class ResultsQuery(msgspec.Struct, frozen=True):
    format: Literal["json", "csv"] = "json"


@route(
    "POST", "/v1/runs",
    roles=SUBMITTERS, body=Any, headers=KEY_HEADER, grows=True, refusals=(Code.INVALID_JOB, Code.IDEMPOTENCY_CONFLICT),
    answers={201: Answer("the run", m.Run), 200: Answer("the run that the same request made before", m.Run)},
    summary="Submit a run: the job file as JSON.",
)  # fmt: skip
def submit(call: Call[Any, NoQuery]) -> Reply:
    key = call.idempotency_key()
    run, created = runs.submit(call.ctx, call.actor, call.body, key, _digest(call.raw))
    return Reply(201 if created else 200, run)


@route(
    "POST", "/v1/runs/check", roles=SUBMITTERS, body=Any, refusals=(Code.INVALID_JOB,),
    answers={200: Answer("it would be accepted", m.Checked)},
    summary="Check a job file as a submit would, and store nothing. Its files need not be uploaded yet.",
)  # fmt: skip
def check(call: Call[Any, NoQuery]) -> m.Checked:
    return runs.check(call.ctx, call.body)


@route(
    "GET", "/v1/runs", roles=PEOPLE, query=RunsQuery, answers={200: Answer("runs", m.Runs)},
    summary="Runs, newest first, with the number of their jobs in each state.",
)  # fmt: skip
def list_runs(call: Call[None, RunsQuery]) -> m.Runs:
    q = call.query
    return runs.list_runs(call.ctx, state=q.state, submitter=q.submitter, label=q.label, cursor=q.cursor, limit=q.limit)


@route("GET", "/v1/runs/{run}", roles=PEOPLE, answers={200: Answer("the run", m.Run)}, summary="One run.")
def get_run(call: Call[None, NoQuery]) -> m.Run:
    return runs.get_run(call.ctx, call.run)


@route(
    "GET", "/v1/runs/{run}/jobs", roles=PEOPLE, query=RunJobsQuery, answers={200: Answer("jobs", m.Jobs)},
    summary="The jobs of a run, in their order.",
)  # fmt: skip
def list_run_jobs(call: Call[None, RunJobsQuery]) -> m.Jobs:
    q = call.query
    runs.get_run(call.ctx, call.run)
    return runs.list_jobs(call.ctx, run=call.run, state=q.state, worker=None, cursor=q.cursor, limit=q.limit)


@route(
    "GET", "/v1/runs/{run}/results", roles=PEOPLE, query=ResultsQuery,
    answers={200: Answer("one row a job", m.Results, media=(JSON, "text/csv"))},
    summary="The table of results: one row a job, with its parameters, result, state, seconds and worker.",
)  # fmt: skip
def results(call: Call[None, ResultsQuery]) -> Response:
    rows = runs.results(call.ctx, call.run)
    if call.query.format == "json":
        return Response(_json_rows(rows), 200, mimetype=JSON)
    params, found = _columns(rows)
    headers = {"Content-Disposition": f'attachment; filename="run-{call.run}.csv"'}
    return Response(
        _csv_rows(runs.results(call.ctx, call.run), params, found), 200, headers, content_type="text/csv; charset=utf-8"
    )


@route(
    "POST", "/v1/runs/{run}/cancel", roles=SUBMITTERS, body=m.Cancel, body_optional=True,
    answers={200: Answer("what it meant for each job", m.CancelAnswer)},
    summary="Cancel all jobs of a run that have not ended.",
)  # fmt: skip
def cancel_run(call: Call[m.Cancel, NoQuery]) -> m.CancelAnswer:
    return runs.cancel_run(call.ctx, call.actor, call.run, call.body.reason)


@route(
    "POST", "/v1/runs/{run}/retry", roles=SUBMITTERS, body=m.Retry, body_optional=True, headers=KEY_HEADER, grows=True,
    refusals=(Code.INVALID_TRANSITION, Code.IDEMPOTENCY_CONFLICT),
    answers={201: Answer("the new run", m.Run), 200: Answer("the run that the same request made before", m.Run)},
    summary="Run the failed, canceled or all jobs of a run again, as a new run.",
)  # fmt: skip
def retry_run(call: Call[m.Retry, NoQuery]) -> Reply:
    key = call.idempotency_key()
    # The path is part of what a key stands for: the same key for another run is another request.
    digest = _digest(b"retry %d %s" % (call.run, call.body.only.encode()))
    run, created = runs.retry_run(call.ctx, call.actor, call.run, call.body.only, key, digest)
    return Reply(201 if created else 200, run)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _json_rows(rows: Iterator[m.ResultRow]) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    yield b'{"items":['
    batch: list[bytes] = []
    first = True
    for row in rows:
        batch.append(encode(row))
        if len(batch) == 500:
            yield (b"" if first else b",") + b",".join(batch)
            first, batch = False, []
    if batch:
        yield (b"" if first else b",") + b",".join(batch)
    yield b'],"next":null}'


def _columns(rows: Iterator[m.ResultRow]) -> tuple[list[str], list[str]]:
    """The names of all parameters and of all results, each in the order in which they come."""
    params: dict[str, None] = {}
    found: dict[str, None] = {}
    for row in rows:
        params.update(dict.fromkeys(row.params))
        found.update(dict.fromkeys(row.result or ()))
    return list(params), list(found)


def _csv_rows(rows: Iterator[m.ResultRow], params: list[str], found: list[str]) -> Iterator[bytes]:
    """One column a parameter and one a result, named after them; a name that is taken says where it comes from."""
    fixed = ["job", "step", "state", "seconds", "worker"]
    taken = {*fixed, *params}
    head = ["job", "step", *(f"param.{p}" if p in fixed else p for p in params)]
    head += [f"result.{f}" if f in taken else f for f in found] + ["state", "seconds", "worker"]
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(head)
    for number, row in enumerate(rows):
        result = row.result or {}
        cells = [row.job, row.step, *(row.params.get(p) for p in params), *(result.get(f) for f in found)]
        writer.writerow([_cell(value) for value in [*cells, row.state, row.seconds, row.worker]])
        if number % 500 == 499:
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode()


def _cell(value: object) -> object:
    """The value exactly: booleans as JSON spells them, lists and objects as JSON."""
    return json.dumps(value) if isinstance(value, bool | list | dict) else value
