"""Runs: submit, list, show, cancel and retry them, and fetch their results and artifacts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
from flask import Response

from deborgen_coordinator.http.answers import HandlerAnswer
from deborgen_coordinator.http.decoding import convert, malformed
from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations.attempts import artifacts
from deborgen_coordinator.operations.jobs import look as jobs
from deborgen_coordinator.operations.runs import cancel, steps
from deborgen_coordinator.operations.runs import look as runs
from deborgen_coordinator.operations.runs import overview as overviews
from deborgen_coordinator.operations.runs import submit as submitting
from deborgen_coordinator.operations.runs.retry import retry_run as retry
from deborgen_shared import contract, headers, strict_json
from deborgen_shared import messages as m
from deborgen_shared.calls import JSON
from deborgen_shared.queries import JobsQuery, NoQuery, ResultsQuery, RunArtifactsQuery, RunJobsQuery, RunsQuery
from deborgen_shared.results_table import Columns, csv_of


@serves(contract.SUBMIT)
def submit(request: CallRequest[Any, NoQuery]) -> HandlerAnswer:
    key = request.idempotency_key()
    digest = _digest(request.raw) if key is not None else ""
    source = submitting.RunSource(_origin(request), _traceparent(request))
    run, created = submitting.submit(request.ctx, request.actor, request.body, key, digest, source)
    return HandlerAnswer(201 if created else 200, run)


@serves(contract.CHECK)
def check(request: CallRequest[Any, NoQuery]) -> m.Checked:
    return submitting.check(request.ctx, request.actor, request.body)


@serves(contract.LIST_RUNS)
def list_runs(request: CallRequest[None, RunsQuery]) -> m.Runs:
    return runs.list_runs(request.ctx, request.query)


@serves(contract.LAST_RUN)
def last_run(request: CallRequest[None, NoQuery]) -> m.Run:
    return runs.last_run(request.ctx, request.actor)


@serves(contract.GET_RUN)
def get_run(request: CallRequest[None, NoQuery]) -> m.Run:
    return runs.get_run(request.ctx, request.run)


@serves(contract.RUN_OVERVIEW)
def overview(request: CallRequest[None, NoQuery]) -> m.RunOverview:
    return overviews.overview(request.ctx, request.run)


@serves(contract.RUN_STEPS)
def run_steps(request: CallRequest[None, NoQuery]) -> m.RunSteps:
    return steps.steps(request.ctx, request.run)


@serves(contract.LIST_RUN_JOBS)
def list_run_jobs(request: CallRequest[None, RunJobsQuery]) -> m.Jobs:
    q = request.query
    return jobs.list_jobs(request.ctx, JobsQuery(run=request.run, state=q.state, cursor=q.cursor, limit=q.limit))


@serves(contract.RESULTS)
def results(request: CallRequest[None, ResultsQuery]) -> Response:
    retries = bool(request.query.retries)
    rows = runs.results(request.ctx, request.run, retries=retries)
    if request.query.format == "json":
        body = request.streams.send(request.actor, _json_rows(rows))
        return Response(body, 200, content_type=JSON, direct_passthrough=True)
    columns = Columns.of(rows)
    sent = {headers.CONTENT_DISPOSITION: f'attachment; filename="run-{request.run}.csv"'}
    lines = csv_of(columns.names, map(columns.cells, runs.results(request.ctx, request.run, retries=retries)))
    body = request.streams.send(request.actor, (line.encode() for line in lines))
    return Response(body, 200, sent, content_type=f"{contract.CSV}; charset=utf-8", direct_passthrough=True)


@serves(contract.LIST_RUN_ARTIFACTS)
def list_run_artifacts(request: CallRequest[None, RunArtifactsQuery]) -> m.RunArtifacts:
    return artifacts.of_run(request.ctx, request.run, request.query.cursor, request.query.limit)


@serves(contract.CANCEL_RUN)
def cancel_run(request: CallRequest[m.Cancel, NoQuery]) -> m.CancelAnswer:
    return cancel.cancel_run(request.ctx, request.actor, request.run, request.body.reason)


@serves(contract.RETRY_RUN)
def retry_run(request: CallRequest[m.Retry, NoQuery]) -> HandlerAnswer:
    key = request.idempotency_key()
    # The digest covers the run's number: the same key for another run is a conflict.
    body = request.body
    rounds = b"" if body.rounds == m.FIRST_ROUND else b" " + body.rounds.encode()
    digest = _digest(b"retry %d %s%s" % (request.run, body.only.encode(), rounds))
    run, created = retry(request.ctx, request.actor, request.run, body, key, digest)
    return HandlerAnswer(201 if created else 200, run)


def _origin(request: CallRequest[Any, NoQuery]) -> m.Origin | None:
    text = request.header(headers.ORIGIN)
    if text is None:
        return None
    try:
        return convert(strict_json.parse(text.encode("ascii")), m.Origin, f"header {headers.ORIGIN}")
    except (UnicodeEncodeError, strict_json.Unreadable):
        raise malformed(f"the header {headers.ORIGIN} must hold a JSON object in ASCII") from None


#: Version, trace, parent and flags, as W3C Trace Context writes them. A trace or a parent of zeros is not valid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def _traceparent(request: CallRequest[Any, NoQuery]) -> str | None:
    """The trace that the request belongs to. Many libraries send one unasked, so a wrong one is no mistake of the
    submitter's."""
    text = request.header(headers.TRACEPARENT)
    return text if text and _TRACEPARENT.fullmatch(text) else None


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _json_rows(rows: Iterator[m.ResultRow]) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    yield b'{"items":['
    comma = b""
    while page := [encode(row) for row in islice(rows, 500)]:
        yield comma + b",".join(page)
        comma = b","
    yield b'],"next":null}'
