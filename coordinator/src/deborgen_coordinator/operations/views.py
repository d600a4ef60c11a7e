"""Turn rows into wire messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET

from deborgen_shared.messages import Job, JobCounts, Origin, Run
from deborgen_shared.states import run_state

from .. import ids
from ..storage.rows import JobRow, RunRow, RunWorkspace, StepRow
from .spec_cache import CachedSpec

_decode = msgspec.json.Decoder().decode
_decode_origin = msgspec.json.Decoder(Origin).decode
_decode_workspace = msgspec.json.Decoder(RunWorkspace).decode


def when(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def maybe_when(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def loads(text: str | None) -> Any:
    return None if text is None else _decode(text)


def run(row: RunRow) -> Run:
    counts = JobCounts(
        queued=row.queued, running=row.running, succeeded=row.succeeded, failed=row.failed, canceled=row.canceled
    )
    state = run_state(row.queued, row.running, row.succeeded, row.failed, row.canceled, row.whole_canceled)
    return Run(
        id=row.id,
        name=row.name,
        submitter=row.submitter,
        labels=_decode(row.labels),
        state=state.value,
        jobs=counts,
        created_at=when(row.created_at),
        finished_at=maybe_when(row.finished_at),
        retry_of=row.retry_of,
        warnings=_decode(row.warnings),
        origin=UNSET if row.origin is None else _decode_origin(row.origin),
        traceparent=UNSET if row.traceparent is None else row.traceparent,
        artifact_store=row.artifact_store,
        **_workspace(row.workspace),
    )


def _workspace(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    found = _decode_workspace(text)
    return {"workspace_source": found.source, "repo_url": found.repo, "repo_ref": found.ref, "commit": found.commit}


def job_fields(
    row: JobRow, owner: RunRow, step: StepRow, spec: CachedSpec, began_at: float | None = None
) -> dict[str, Any]:
    """The fields of a job in lists and in its own answer."""
    return {
        "id": ids.name(row.id),
        "run": ids.run_of(row.id),
        "index": ids.index_of(row.id),
        "step": step.name,
        "name": spec.job.name,
        "submitter": owner.submitter,
        "state": row.state.value,
        "reason": row.reason,
        "params": _decode(row.params),
        "priority": -row.rank,
        "attempts": row.attempts,
        "max_attempts": spec.job.max_attempts,
        "worker": row.worker,
        "exit_code": row.exit_code,
        "result": loads(row.result),
        "progress": row.progress,
        "created_at": when(row.created_at or owner.created_at),
        "started_at": maybe_when(row.started_at),
        "finished_at": maybe_when(row.finished_at),
        "message": row.message or "",
        "warnings": loads(row.warnings) or [],
        "began_at": maybe_when(began_at),
        "phase": row.phase,
        "round": row.round,
        "verified": row.verified,
    }


def job(row: JobRow, owner: RunRow, step: StepRow, spec: CachedSpec, began_at: float | None = None) -> Job:
    return Job(**job_fields(row, owner, step, spec, began_at))
