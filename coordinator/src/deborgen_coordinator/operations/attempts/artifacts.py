"""The artifacts of a job, an attempt or a run. Every listed artifact is complete."""

from __future__ import annotations

import re

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import Artifacts, ArtifactView, RunArtifact, RunArtifacts

from ... import ids
from ...storage import attempts, blobs
from ...storage.database import DatabaseConnection
from ..context import Context
from ..lookup import Noun, UnknownName, find_job, find_run

_CURSOR = re.compile(r"([0-9]{1,18}):([0-9]{1,9})", re.ASCII)


def listed(ctx: Context, reader: DatabaseConnection, job: int, attempt: int | None = None) -> list[ArtifactView]:
    """The artifacts of one attempt of a job; without a number, of the newest attempt that has artifacts."""
    rows = blobs.artifacts(reader, job, attempt)
    return [
        ArtifactView(path=path, sha256=digest, size=size, uri=ctx.blobs.uri(digest, upload))
        for path, digest, size, upload in rows
    ]


def of_job(ctx: Context, run: int, index: int, attempt: int | None = None) -> Artifacts:
    """The artifacts of a job, or of one of its attempts."""

    def look(reader: DatabaseConnection) -> list[ArtifactView]:
        job = find_job(reader, run, index).id
        if attempt is not None and not attempts.exists(reader, job, attempt):
            raise UnknownName(Noun.ATTEMPT, f"job {run}.{index} has no attempt {attempt}")
        return listed(ctx, reader, job, attempt)

    return Artifacts(items=ctx.store.read(look), next=None)


def find(ctx: Context, run: int, index: int, path: str, attempt: int | None = None) -> ArtifactView:
    for item in of_job(ctx, run, index, attempt).items:
        if item.path == path:
            return item
    whose = f"job {run}.{index}" if attempt is None else f"attempt {run}.{index}/{attempt}"
    raise UnknownName(Noun.ARTIFACT, f"{whose} has no artifact {path!r}")


def of_run(ctx: Context, run: int, cursor: str | None, limit: int) -> RunArtifacts:
    """A page of the artifacts of a run's jobs, in the order of the jobs and then of the paths.

    The cursor has the last job on the previous page, and how many of that job's artifacts have been listed.
    """

    def look(reader: DatabaseConnection) -> RunArtifacts:
        find_run(reader, run)
        first, last = ids.span(run)
        job, seen = _parse_cursor(cursor, first, last)
        rows = blobs.artifacts_of_jobs(reader, job, last, seen, limit + 1)
        items = [
            RunArtifact(job=ids.name(key), path=path, sha256=digest, size=size, uri=ctx.blobs.uri(digest, upload))
            for key, path, digest, size, upload in rows[:limit]
        ]
        if len(rows) <= limit:
            return RunArtifacts(items=items, next=None)
        at = rows[limit - 1][0]
        count = sum(1 for row in rows[:limit] if row[0] == at) + (seen if at == job else 0)
        return RunArtifacts(items=items, next=f"{at}:{count}")

    return ctx.store.read(look)


def _parse_cursor(cursor: str | None, first: int, last: int) -> tuple[int, int]:
    """The job with which a page begins, and how many of its artifacts are on earlier pages."""
    if cursor is None:
        return first, 0
    match = _CURSOR.fullmatch(cursor)
    if not match or not first <= int(match[1]) <= last:
        raise Refusal(Code.MALFORMED, f"{cursor[:40]!r} is not a cursor", "take it from `next` of the previous page")
    return int(match[1]), int(match[2])
