"""Finishing: results come in, and the first terminal one wins."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.paths import check_path, find_twins
from deborgen_shared.messages import Finish, Finished, Result
from deborgen_shared.states import INFRASTRUCTURE_FAILURES, Outcome

from .. import ids
from ..leases import lease_end
from ..storage import attempts, blobs, logs, workers
from ..storage.rows import Held, WorkerRow
from ..storage.transactions import Tx
from .claims import Given, take
from .context import Actor, Context
from .endings import charge, count_failures, judge, may_resume
from .history import record
from .lookup import find_worker
from .sessions import check_identity, check_session
from .transitions import Changes, begin, conclude, resume, settle, write

_encode = msgspec.json.Encoder(order="deterministic").encode

MOST_RESULT_BYTES = 64 * 1024


def finish(ctx: Context, actor: Actor, name: str, body: Finish) -> Finished:
    """Record the results, each on its own merits: all of what a result says, or nothing of it.

    A claim that comes with them is answered from the same transaction. A worker that gives something back is given
    nothing: it would get the same job again.
    """
    check_identity(actor, name)
    for result in body.results:
        _check(result)
    digests = [_digest(result) for result in body.results]

    gives_back = any(result.outcome == Outcome.RELEASED.value for result in body.results)

    def work(tx: Tx) -> tuple[Finished, list[float], int, Given | None]:
        now = ctx.clock.wall()
        worker = check_session(tx, name, body.session)
        clock = workers.clock(tx)
        answers: dict[str, Any] = {}
        missing: dict[str, list[str]] = {}
        ended: list[Outcome] = []
        seconds: list[float] = []
        changes = Changes()
        for result, digest in zip(body.results, digests, strict=True):
            answer, lacking = _finish_one(ctx, tx, changes, actor, worker, body.session, result, digest, now, clock)
            answers[result.attempt] = answer
            if lacking:
                missing[result.attempt] = lacking
            if answer == "accepted":
                ended.append(Outcome(result.outcome))
                seconds.append(result.seconds)
        settle(tx, changes, actor, now)
        count_failures(tx, actor, worker, ended, clock, now)
        stale = sum(1 for answer in answers.values() if answer == "stale")
        finished = Finished(results=answers, missing=missing)
        if body.claim is None:
            return finished, seconds, stale, None
        if INFRASTRUCTURE_FAILURES.intersection(ended):
            worker = find_worker(tx, name)  # it may have been sent to rest
        given = Given() if gives_back else take(ctx, tx, actor, worker, body.claim)
        finished.assignments, finished.waited_seconds = given.assignments, 0.0
        return finished, seconds, stale, given

    finished, seconds, stale, given = write(ctx, work)
    if given is not None and body.claim is not None:
        ctx.wakeups.ask_more(name, body.claim, answered=bool(given.assignments) or given.asked_before)
        ctx.catalog.keep(given.specs, given.needs)
        ctx.metrics.waited(given.waits)
    ctx.metrics.ran(seconds)
    ctx.metrics.stale_results.inc(stale)
    return finished


def _digest(result: Result) -> str:
    """By which a repeat is known. How much of the log goes with a result, and how long ago its program began, depend on
    when it is sent, and are left out."""
    return hashlib.sha256(_encode(msgspec.structs.replace(result, log=None, began_seconds_ago=None))).hexdigest()


def _check(result: Result) -> None:
    """Refuse what can never be right, before anything is stored."""
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
            Code.TOO_LARGE, f"the result of {result.attempt} is over {MOST_RESULT_BYTES} bytes", "make it an artifact"
        )


def _finish_one(
    ctx: Context,
    tx: Tx,
    changes: Changes,
    actor: Actor,
    worker: WorkerRow,
    session: str,
    result: Result,
    digest: str,
    now: float,
    clock: float,
) -> tuple[str, list[str]]:
    """What is answered for one result, and the blobs that it names and that are not here."""
    job, number = ids.parse_attempt(result.attempt)
    held = attempts.get(tx, job, number)
    if held is None:
        return "stale", []
    if held.worker_id != worker.id:
        raise Refusal(
            Code.FORBIDDEN, f"attempt {result.attempt} is not this worker's", "send only what this worker was given"
        )
    if not held.live and held.digest == digest:
        return "already_recorded", []
    came_back = may_resume(held, worker.id, session)
    if not came_back and not _holds(held, session):
        attempts.mark_stale(tx, job, number)
        record(
            tx, now, "result.stale", actor, job=job, attempt=number, worker=worker.name,
            data={"what": "result", "outcome": result.outcome},
        )  # fmt: skip
        return "stale", []
    lacking = _lacking(tx, result)
    if lacking:
        return "missing_blobs", lacking
    if came_back:
        resume(tx, changes, actor, held, session, lease_end(clock, ctx.settings.lease_seconds), now)
        held = attempts.get(tx, job, number)
        assert held is not None
    _record(ctx, tx, changes, actor, held, result, digest, now, clock)
    return "accepted", []


def _holds(held: Held, session: str) -> bool:
    """Whether the session holds the lease of the attempt, which is the newest one of its job."""
    return held.live and held.current and held.session == session


def _lacking(tx: Tx, result: Result) -> list[str]:
    """The digests of the artifacts whose blobs are not here."""
    known = blobs.known_blobs(tx, {artifact.sha256 for artifact in result.artifacts})
    return sorted({a.sha256 for a in result.artifacts if known.get(a.sha256) != a.size})


def _record(
    ctx: Context,
    tx: Tx,
    changes: Changes,
    actor: Actor,
    held: Held,
    result: Result,
    digest: str,
    now: float,
    clock: float,
) -> None:
    if result.log is not None and result.log.offset <= held.log_size:
        fresh = result.log.data[held.log_size - result.log.offset :]
        if fresh:
            logs.append(tx, held.job, held.number, held.log_size, fresh)
    artifacts = [(artifact.path, artifact.sha256, artifact.size) for artifact in result.artifacts]
    if artifacts:
        blobs.add_artifacts(tx, held.job, held.number, artifacts)
    outcome = Outcome(result.outcome)
    reason = result.reason
    if not reason and outcome is Outcome.FAILED and result.exit_code is not None:
        reason = f"exit code {result.exit_code}"
    began_at = begin(tx, actor, held, result.began_seconds_ago, now)
    charge(ctx, tx, held, result.seconds)
    conclude(
        tx,
        changes,
        actor,
        held,
        outcome,
        judge(ctx, tx, held, outcome, reason),
        now=now,
        clock=clock,
        reason=reason,
        seconds=result.seconds,
        result=result,
        result_json=_encode(result.result).decode() if result.result is not None else None,
        warnings_json=_encode(result.warnings).decode() if result.warnings else None,
        digest=digest,
        began_at=began_at,
    )
