"""Artifacts: what jobs left, by job, by attempt, and by run. All that is listed is whole."""

from __future__ import annotations

import re

from deborgen_shared import contract
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import Artifacts, ArtifactView, RunArtifact, RunArtifacts
from deborgen_shared.queries import ArtifactsQuery

from ... import ids
from ...storage import attempts, blobs
from ...storage.database import DatabaseConnection
from ..context import Context
from ..lookup import find_job, find_run

_CURSOR = re.compile(r"([0-9]{1,18}):([0-9]{1,9})", re.ASCII)


def listed(reader: DatabaseConnection, job: int, attempt: int | None = None) -> list[ArtifactView]:
    """The artifacts of one attempt of a job; without a number, of its newest attempt that left any."""
    rows = blobs.artifacts(reader, job, attempt)
    return [ArtifactView(path=path, sha256=digest, size=size) for path, digest, size in rows]


def of_job(ctx: Context, run: int, index: int, attempt: int | None = None) -> Artifacts:
    """What the job left, or one attempt of it."""

    def look(reader: DatabaseConnection) -> list[ArtifactView]:
        job = find_job(reader, run, index).id
        if attempt is not None and not attempts.exists(reader, job, attempt):
            hint = f"GET {contract.GET_JOB.url(job=ids.name(job))} lists its attempts"
            raise Refusal(Code.NOT_FOUND, f"job {run}.{index} has no attempt {attempt}", hint)
        return listed(reader, job, attempt)

    return Artifacts(items=ctx.store.read(look), next=None)


def find(ctx: Context, run: int, index: int, path: str, attempt: int | None = None) -> ArtifactView:
    for item in of_job(ctx, run, index, attempt).items:
        if item.path == path:
            return item
    whose = f"job {run}.{index}" if attempt is None else f"attempt {run}.{index}/{attempt}"
    where = contract.LIST_ARTIFACTS.url(ArtifactsQuery(attempt=attempt), job=f"{run}.{index}")
    raise Refusal(Code.NOT_FOUND, f"{whose} has no artifact {path!r}", f"GET {where} lists them")


def of_run(ctx: Context, run: int, cursor: str | None, limit: int) -> RunArtifacts:
    """A page of what the jobs of a run left, in the order of the jobs, and of the paths of each.

    The cursor is the last job on the page before, and how many of its artifacts have been seen.
    """

    def look(reader: DatabaseConnection) -> RunArtifacts:
        find_run(reader, run)
        first, last = ids.span(run)
        job, seen = _parse(cursor, first, last)
        rows = blobs.artifacts_of_jobs(reader, job, last, seen, limit + 1)
        items = [
            RunArtifact(job=ids.name(key), path=path, sha256=digest, size=size)
            for key, path, digest, size in rows[:limit]
        ]
        if len(rows) <= limit:
            return RunArtifacts(items=items, next=None)
        at = rows[limit - 1][0]
        count = sum(1 for row in rows[:limit] if row[0] == at) + (seen if at == job else 0)
        return RunArtifacts(items=items, next=f"{at}:{count}")

    return ctx.store.read(look)


def _parse(cursor: str | None, first: int, last: int) -> tuple[int, int]:
    """The job with which a page begins, and how many of its artifacts are on the pages before."""
    if cursor is None:
        return first, 0
    match = _CURSOR.fullmatch(cursor)
    if not match or not first <= int(match[1]) <= last:
        raise Refusal(Code.MALFORMED, f"{cursor[:40]!r} is not a cursor", "take it from `next` of the page before")
    return int(match[1]), int(match[2])
