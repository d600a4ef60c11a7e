"""Finish attempts: record their results. The first terminal result wins."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.messages import Finish, Finished, Result
from deborgen_shared.states import Outcome, ResultAnswer

from ... import ids
from ...storage import attempts, blobs, jobs, logs
from ...storage.rows import HeldAttempt, WorkerRow
from ...storage.transactions import Tx
from .. import views
from ..attempts.failures import MachineOutcome, count_failures
from ..attempts.outcomes import charge, judge, may_resume, note_stale
from ..context import Actor, Context
from ..images import check_built, record_image
from ..work import AttemptEnding, Work
from .claim import Grant, take
from .sessions import check_identity, check_session

_encode = msgspec.json.Encoder(order="deterministic").encode

MOST_RESULT_BYTES = 64 * 1024


def finish(ctx: Context, actor: Actor, name: str, body: Finish) -> Finished:
    """Record the results, each independently of the others: a result is recorded completely or not at all.

    A claim that comes with the results is answered in the same transaction. A worker that releases an attempt gets no
    new job, because it could get the same job again.
    """
    check_identity(actor, name)
    for result in body.results:
        if result.artifacts or result.result is not None:
            _check_result(result)
    digests = [_digest(result) for result in body.results]
    releases = any(result.outcome == Outcome.RELEASED.value for result in body.results)

    def record(work: Work) -> tuple[Finished, list[float], Grant]:
        worker = check_session(work.tx, name, body.session)
        finished = Finished(results={}, missing={})
        ended: list[MachineOutcome] = []
        seconds: list[float] = []
        for result, digest in zip(body.results, digests, strict=True):
            answer, missing, held = _finish_one(work, worker, result, digest)
            finished.results[result.attempt] = answer
            if missing:
                finished.missing[result.attempt] = missing
            if held is not None:
                outcome = Outcome(result.outcome)
                ended.append(MachineOutcome(held, outcome, result.reason, result.cause, result.image))
                seconds.append(result.seconds)
        work.settle_steps()  # so that the claim finds the jobs that these results have made ready
        worker = count_failures(work, worker, ended)
        grant = Grant()
        if body.claim is not None:
            grant = grant if releases else take(work, worker, body.claim)
            finished.assignments, finished.waited_seconds = grant.assignments, 0.0
        return finished, seconds, grant

    finished, seconds, grant = ctx.work(actor, record)
    if body.claim is not None:
        ctx.wakeups.update_claim(name, body.claim, answered=bool(grant.assignments) or grant.repeated)
        ctx.spec_cache.keep(grant.specs, grant.needs)
        ctx.metrics.observe_waits(grant.waits)
    ctx.metrics.observe_runs(seconds)
    if stale := sum(answer is ResultAnswer.STALE for answer in finished.results.values()):
        ctx.metrics.stale_results.inc(stale)
    return finished


def _digest(result: Result) -> str:
    """The digest that identifies a repeated result. It leaves out the log's tail and the program's age, which depend on
    when the result is sent."""
    return hashlib.sha256(_encode(msgspec.structs.replace(result, log=None, began_seconds_ago=None))).hexdigest()


def _check_result(result: Result) -> None:
    """Refuse a result that can never be valid, before anything is stored."""
    paths = [artifact.path for artifact in result.artifacts]
    for path in paths:
        problem = check_path(path)
        if problem:
            raise Refusal(
                Code.INVALID_JOB,
                f"artifact {path!r} of {result.attempt}: {problem}",
                "use relative paths below the workspace",
            )
    twins = find_twins(paths)
    if twins:
        raise Refusal(
            Code.INVALID_JOB,
            f"artifacts of {result.attempt} differ only in case or spelling: {twins[0]!r}",
            "give them names that differ on every file system",
        )
    if result.result is not None and len(_encode(result.result)) > MOST_RESULT_BYTES:
        raise Refusal(
            Code.TOO_LARGE,
            f"the result of {result.attempt} exceeds {MOST_RESULT_BYTES} bytes",
            "write it to an artifact",
        )


def _finish_one(
    work: Work, worker: WorkerRow, result: Result, digest: str
) -> tuple[ResultAnswer, list[str], HeldAttempt | None]:
    """The answer to one result, the missing blobs of its artifacts, and the attempt if it has now ended."""
    job, number = ids.parse_attempt(result.attempt)
    held = attempts.get(work.tx, job, number)
    if held is None:
        return ResultAnswer.STALE, [], None
    if held.worker_id != worker.id:
        raise Refusal(
            Code.FORBIDDEN, f"attempt {result.attempt} belongs to another worker", "send only results of this worker"
        )
    if not held.live and held.digest == digest:
        return ResultAnswer.ALREADY_RECORDED, [], None
    if result.outcome == Outcome.RELEASED.value and result.artifacts:
        result = msgspec.structs.replace(result, artifacts=[])  # the next attempt makes them
    resumes = may_resume(held, worker.id, worker.session)
    if not resumes and not _holds(held, worker.session):
        note_stale(work, held, {"what": "result", "outcome": result.outcome})
        return ResultAnswer.STALE, [], None
    if result.built is not None:
        check_built(work.ctx, work.tx, held, _params(work.tx, job), result)
    missing = _missing_blobs(work.tx, result) if result.artifacts else []
    if missing:
        return ResultAnswer.MISSING_BLOBS, missing, None
    if resumes:
        work.resume(held, worker.session)
        held = attempts.get(work.tx, job, number)
        assert held is not None
    _record(work, held, result, digest)
    return ResultAnswer.ACCEPTED, [], held


def _holds(held: HeldAttempt, session: str) -> bool:
    """Whether the session holds the lease of the attempt, and the attempt is its job's newest."""
    return held.live and held.current and held.session == session


def _missing_blobs(tx: Tx, result: Result) -> list[str]:
    """The digests of the artifacts whose blobs are missing."""
    known = blobs.known_blobs(tx, {artifact.sha256 for artifact in result.artifacts})
    return sorted({a.sha256 for a in result.artifacts if known.get(a.sha256) != a.size})


def _record(work: Work, held: HeldAttempt, result: Result, digest: str) -> None:
    size = held.log_size
    if result.log is not None and result.log.offset <= size:
        fresh = result.log.data[size - result.log.offset :]
        if fresh:
            size = logs.append(work.tx, held.job, held.number, size, fresh)
    if size > result.log_size:
        # The worker announces less than it has sent. Bytes that were accepted are part of the log.
        result = msgspec.structs.replace(result, log_size=size)
    shown = record_image(work, held, result)
    if shown is not None:
        result = msgspec.structs.replace(result, artifacts=[], result=shown)
    artifacts = [(artifact.path, artifact.sha256, artifact.size) for artifact in result.artifacts]
    if artifacts:
        blobs.add_artifacts(work.tx, held.job, held.number, artifacts)
    outcome = Outcome(result.outcome)
    reason = result.reason
    # A program that was killed, for example because it used too much disk, has not answered: its worker says why.
    says_no = outcome is Outcome.FAILED and bool(result.exit_code) and not reason
    if not reason and outcome is Outcome.FAILED and result.exit_code is not None:
        reason = f"exit code {result.exit_code}"
    began_at = work.note_program_start(held, result.began_seconds_ago)
    charge(work, held, result.seconds)
    ending = AttemptEnding(outcome, reason, result.seconds, began_at=began_at, result=result, digest=digest)
    work.conclude(held, judge(work, held, outcome, reason, says_no=says_no), ending)


def _params(tx: Tx, job: int) -> dict[str, Any]:
    row = jobs.get(tx, job)
    return views.loads(row.params) if row is not None else {}
