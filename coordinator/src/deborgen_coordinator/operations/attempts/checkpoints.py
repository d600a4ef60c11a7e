"""Checkpoints: what a running program has saved, to be restored before the job's next attempt."""

from __future__ import annotations

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.messages import Checkpoint, CheckpointSaved, CheckpointView, SaveCheckpoint, SavedFile

from ... import ids
from ...storage import blobs, checkpoints
from ...storage.checkpoints import CheckpointRow, FileRow
from ...storage.database import DatabaseConnection
from ...storage.rows import HeldAttempt
from ...storage.transactions import Tx
from .. import views
from ..context import Actor, Context
from ..work import About, Work
from ..workers.sessions import AttemptId, find_own_attempt, refuse_stale


def save(ctx: Context, actor: Actor, attempt: AttemptId, body: SaveCheckpoint) -> CheckpointSaved:
    """Replace the job's checkpoint by this one, if all its blobs are there.

    Only the live attempt may do that. A repeat, or a checkpoint that is older than the attempt's last one, changes
    nothing.
    """

    def replace(work: Work) -> CheckpointSaved | None:
        held = find_own_attempt(work, attempt, body.session)
        if not (held.live and held.current):
            return None
        _check_files(work.ctx.spec_cache.spec(work.tx, held.spec_id).job, body.files)
        before = checkpoints.get(work.tx, held.job)
        if before is not None and before.attempt == held.number and before.number >= body.number:
            return CheckpointSaved(number=before.number)
        wanted = {file.path: FileRow(file.sha256, file.size, file.mode) for file in body.files}
        stored = checkpoints.files(work.tx, held.job)
        missing = _missing_blobs(work.tx, wanted, stored)
        if missing:
            last = before.number if before is not None and before.attempt == held.number else 0
            return CheckpointSaved(number=last, missing=missing)
        checkpoints.replace(work.tx, held.job, CheckpointRow(held.number, body.number, work.now), wanted, stored)
        _record(work, held, body)
        return CheckpointSaved(number=body.number)

    saved = ctx.work(actor, replace)
    if saved is None:
        raise refuse_stale(ctx, actor, attempt, "checkpoint")
    return saved


def _record(work: Work, held: HeldAttempt, body: SaveCheckpoint) -> None:
    data = {"number": body.number, "files": len(body.files), "size": sum(file.size for file in body.files)}
    work.record("attempt.checkpointed", About.attempt_of(held), data=data)


def _check_files(spec: JobSpec, files: list[SavedFile]) -> None:
    """Refuse files outside the job's `checkpoint.path`: they are put into the workspace of the next attempt."""
    if spec.checkpoint is None:
        raise Refusal(Code.INVALID_JOB, "the job has no 'checkpoint'", "save only what the job file names")
    root = spec.checkpoint.path
    for file in files:
        problem = check_path(file.path)
        if problem is None and file.path != root and not file.path.startswith(f"{root}/"):
            problem = f"is not in {root!r}"
        if problem:
            raise Refusal(Code.INVALID_JOB, f"checkpoint file {file.path!r} {problem}", "use paths in checkpoint.path")
    twins = find_twins(file.path for file in files)
    if twins:
        message = f"some file systems cannot tell {twins[0][1]!r} from {twins[0][0]!r}"
        raise Refusal(Code.INVALID_JOB, message, "give them names that differ on every file system")


def _missing_blobs(tx: Tx, wanted: dict[str, FileRow], stored: dict[str, FileRow]) -> list[str]:
    """The blobs that must be uploaded first. Those of the checkpoint that is stored are certainly there."""
    present = {file.digest: file.size for file in stored.values()}
    fresh = {file.digest for file in wanted.values()} - present.keys()
    present |= blobs.known_blobs(tx, fresh)
    return sorted({file.digest for file in wanted.values() if present.get(file.digest) != file.size})


def last(tx: Tx, job: int) -> Checkpoint | None:
    """What the job's attempts have saved last, for the workspace of its next attempt."""
    row = checkpoints.get(tx, job)
    if row is None:
        return None
    files = [
        SavedFile(path=path, sha256=file.digest, size=file.size, mode=file.mode)
        for path, file in checkpoints.files(tx, job).items()
    ]
    return Checkpoint(attempt=ids.attempt_name(job, row.attempt), number=row.number, files=files)


def view(reader: DatabaseConnection, job: int) -> CheckpointView | None:
    """What people see of the job's checkpoint."""
    row = checkpoints.get(reader, job)
    if row is None:
        return None
    count, size = checkpoints.amount(reader, job)
    return CheckpointView(
        attempt=ids.attempt_name(job, row.attempt), number=row.number, saved_at=views.when(row.saved_at), files=count,
        size=size,
    )  # fmt: skip
