"""The statements that every claim, heartbeat, result and submit needs: compiled once, or written by hand.

Everything else in storage is a Peewee query that is built for each call. Each docstring here gives two costs, built for
each call / compiled, in microseconds, on SQLite and two busy cores. `benchmarks/statements.py` measures both, and a
test checks that each statement does what its plain query does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from peewee import EXCLUDED, SQL, Case, fn

from deborgen_shared.states import State

from .models import (
    Artifact,
    Attempt,
    Blob,
    Claim,
    Event,
    Experience,
    Job,
    JobClass,
    LeaseClock,
    LogChunk,
    Run,
    RunLabel,
    Spec,
    SpecFile,
    Spent,
    Step,
    Submission,
    Submitter,
    Token,
    Worker,
)
from .rows import HeldAttempt, RunRow, StepRow, TokenRow, WorkerRow, columns
from .statements import Locked, Reader, Statement

V = Any
"""The value of a parameter."""

LIVE = Attempt.outcome.is_null()

#: The first job of each lane. The query walks along the index with one seek per lane, even if the lanes are long. The
#: three ways to the next lane are written out because SQLite uses only the first column of a row comparison, and would
#: scan all jobs of a class.
LANES = """
WITH RECURSIVE lane (class_id, submitter_id, avoid, rank, id) AS (
    SELECT * FROM (
        SELECT class_id, submitter_id, avoid, rank, id FROM job WHERE ready = 1
        ORDER BY class_id, submitter_id, avoid, rank, id LIMIT 1
    ) AS first
    UNION ALL
    SELECT job.class_id, job.submitter_id, job.avoid, job.rank, job.id FROM lane JOIN job ON job.id = COALESCE(
        (SELECT next.id FROM job AS next WHERE next.ready = 1 AND next.class_id = lane.class_id
            AND next.submitter_id = lane.submitter_id AND next.avoid > lane.avoid
            ORDER BY next.avoid, next.rank, next.id LIMIT 1),
        (SELECT next.id FROM job AS next WHERE next.ready = 1 AND next.class_id = lane.class_id
            AND next.submitter_id > lane.submitter_id
            ORDER BY next.submitter_id, next.avoid, next.rank, next.id LIMIT 1),
        (SELECT next.id FROM job AS next WHERE next.ready = 1 AND next.class_id > lane.class_id
            ORDER BY next.class_id, next.submitter_id, next.avoid, next.rank, next.id LIMIT 1)
    )
)
SELECT rank, id, class_id, submitter_id, avoid FROM lane
"""


# Every request


@Statement
def token_numbered(token: V) -> Any:
    """110 / 2 us. It is cached for a second, so a caller who asks less often reads it each time."""
    return Token.select(*columns(TokenRow, Token)).where(Token.id == token)


# Every request of a worker


@Statement
def worker_named(name: V) -> Any:
    """439 / 4 us."""
    return Worker.select(*columns(WorkerRow, Worker)).where(Worker.name == name)


@Statement
def lock_worker(name: V) -> Any:
    """503 / 4 us."""
    return Locked(worker_named.build(name))


@Statement
def lease_clock() -> Any:
    """84 / 1 us."""
    return LeaseClock.select(LeaseClock.value)


# A claim


@Statement
def claim_of(worker: V, request: V) -> Any:
    """166 / 1 us."""
    return Claim.select(Claim.id).where((Claim.worker == worker) & (Claim.request_id == request))


@Statement
def any_ready() -> Any:
    """137 / 1 us."""
    return Job.select(SQL("1")).where(Job.ready == 1).limit(1)


@Statement
def first_of_lane(job_class: V, submitter: V, avoid: V, most: V) -> Any:
    """526 / 3 us."""
    lane = (Job.job_class == job_class) & (Job.submitter == submitter) & (Job.avoid == avoid)
    query = Job.select(Job.rank, Job.id, Job.step, Job.spec, Job.params, Job.last_attempt).where(
        (Job.ready == 1) & lane
    )
    return Locked(query.order_by(Job.rank, Job.id).limit(most), skip_locked=True)


@Statement
def spec_numbered(spec: V) -> Any:
    """64 / 1 us. Nearly every single job has a spec of its own."""
    return Spec.select(Spec.job_class, Spec.body).where(Spec.id == spec)


@Statement
def needs_of_class(job_class: V) -> Any:
    """54 / 1 us."""
    return JobClass.select(JobClass.needs).where(JobClass.id == job_class)


@Statement
def avoided_subjects(worker: V, clock: V) -> Any:
    """Every claim needs it. Its costs have not been measured."""
    failing = (Experience.worker == worker) & (Experience.failures > 0) & (Experience.avoid_clock > clock)
    return Experience.select(Experience.subject).where(failing)


@Statement
def start_job(worker: V, now: V, job: V) -> Any:
    """276 / 10 us."""
    change = {
        Job.state: State.RUNNING.value, Job.ready: 0, Job.avoid: 0, Job.avoid_clock: None, Job.worker: worker,
        Job.attempts: Job.attempts + 1, Job.last_attempt: Job.last_attempt + 1, Job.started_at: now,
        Job.progress: None, Job.message: None, Job.reason: "",
    }  # fmt: skip
    return Job.update(change).where((Job.id == job) & (Job.state == State.QUEUED.value) & (Job.ready == 1))


@Statement
def add_claim(worker: V, request: V, now: V) -> Any:
    """193 / 4 us."""
    return Claim.insert({Claim.worker: worker, Claim.request_id: request, Claim.created_at: now}).returning(Claim.id)


@Statement
def add_attempt(job: V, number: V, worker: V, session: V, claim: V, granted: V, deadline: V, lease: V, now: V) -> Any:
    """352 / 29 us."""
    return Attempt.insert({
        Attempt.job: job, Attempt.number: number, Attempt.worker: worker, Attempt.session: session,
        Attempt.claim: claim, Attempt.granted_clock: granted, Attempt.deadline_clock: deadline,
        Attempt.lease_clock: lease, Attempt.claimed_at: now,
    })  # fmt: skip


@cache
def runs_among(count: int) -> Statement:
    """234 / 7 us. Reads this many runs at once: the jobs of one claim may belong to several runs."""

    def build(*runs: V) -> Any:
        query = Run.select(*columns(RunRow, Run, submitter=Submitter.name)).join(Submitter)
        return query.where(Run.id.in_(runs))

    return Statement(build, count)


@Statement
def move_run(queued: V, running: V, succeeded: V, failed: V, canceled: V, unfinished: V, now: V, run: V) -> Any:
    """607 / 3 us. `unfinished` is `queued` plus `running`: a run is finished when all its jobs are terminal."""
    finished = Case(None, [(Run.queued + Run.running + unfinished == 0, now)], None)
    change = {
        Run.queued: Run.queued + queued, Run.running: Run.running + running, Run.succeeded: Run.succeeded + succeeded,
        Run.failed: Run.failed + failed, Run.canceled: Run.canceled + canceled, Run.finished_at: finished,
    }  # fmt: skip
    return Run.update(change).where(Run.id == run)


# A heartbeat


@Statement
def record_heartbeat(state: V, reason: V, until: V, free: V, metrics: V, clock: V, now: V, worker: V) -> Any:
    """206 / 5 us."""
    change = {
        Worker.state: state, Worker.reason: reason, Worker.until_at: until, Worker.free: free,
        Worker.metrics: fn.COALESCE(metrics, Worker.metrics), Worker.online: 1, Worker.seen_clock: clock,
        Worker.seen_at: now,
    }  # fmt: skip
    return Worker.update(change).where(Worker.id == worker)


def attempts_where(*conditions: Any) -> Any:
    renamed = {
        "worker_id": Attempt.worker, "worker": Worker.name, "named": Attempt.named,
        "claimed_at": Attempt.claimed_at, "job_state": Job.state, "job_attempts": Job.attempts,
        "job_last_attempt": Job.last_attempt, "job_step": Job.step, "spec_id": Job.spec, "submitter_id": Job.submitter,
        "cancel_requested": Job.cancel_requested, "cancel_reason": Job.reason,
    }  # fmt: skip
    query = Attempt.select(*columns(HeldAttempt, Attempt, **renamed))
    query = query.join(Job, on=(Job.id == Attempt.job)).join(Worker, on=(Worker.id == Attempt.worker))
    return query.where(*conditions)


def lock_attempts(query: Any) -> Locked:
    return Locked(query, of=(Attempt, Job))


@Statement
def live_attempts_of(worker: V) -> Any:
    """812 / 4 us."""
    return lock_attempts(attempts_where(Attempt.worker == worker, LIVE).order_by(Attempt.job))


@Statement
def renew_lease(lease: V, began: V, deadline: V, job: V, number: V, worker: V, session: V) -> Any:
    """171 / 4 us."""
    change = {
        Attempt.lease_clock: lease, Attempt.named: 1, Attempt.began_at: began, Attempt.deadline_clock: deadline,
    }  # fmt: skip
    held = (Attempt.job == job) & (Attempt.number == number) & (Attempt.worker == worker) & (Attempt.session == session)
    return Attempt.update(change).where(held & LIVE)


@Statement
def set_progress(progress: V, message: V, job: V) -> Any:
    """95 / 2 us."""
    change = {Job.progress: progress, Job.message: message}
    return Job.update(change).where((Job.id == job) & (Job.state == State.RUNNING.value))


# A result


@Statement
def attempt_numbered(job: V, number: V) -> Any:
    """494 / 4 us."""
    return lock_attempts(attempts_where(Attempt.job == job, Attempt.number == number))


@Statement
def end_attempt(
    outcome: V, reason: V, now: V, exit_code: V, seconds: V, cpu_seconds: V, peak_memory: V, image: V, digest: V,
    announced_size: V, began: V, named: V, job: V, number: V,
) -> Any:  # fmt: skip
    """346 / 9 us."""
    change = {
        Attempt.outcome: outcome, Attempt.reason: reason, Attempt.finished_at: now, Attempt.lease_clock: None,
        Attempt.exit_code: exit_code, Attempt.seconds: seconds, Attempt.cpu_seconds: cpu_seconds,
        Attempt.peak_memory: peak_memory, Attempt.image: image, Attempt.digest: digest,
        Attempt.announced_size: announced_size, Attempt.began_at: began,
        Attempt.named: Case(None, [(named == 1, 1)], Attempt.named),
    }  # fmt: skip
    return Attempt.update(change).where((Attempt.job == job) & (Attempt.number == number) & LIVE)


@Statement
def experience(subject: V, worker: V) -> Any:
    """Every result of a program needs it. Its costs have not been measured."""
    this = (Experience.subject == subject) & (Experience.worker == worker)
    return Experience.select(Experience.failures, Experience.at).where(this)


@Statement
def finish_job(
    state: V, reason: V, exit_code: V, result: V, warnings: V, now: V, verified: V, job: V, number: V
) -> Any:
    """325 / 7 us."""
    change = {
        Job.state: state, Job.reason: reason, Job.exit_code: exit_code, Job.result: result, Job.warnings: warnings,
        Job.finished_at: now, Job.verified: verified,
    }  # fmt: skip
    current = (Job.id == job) & (Job.state == State.RUNNING.value) & (Job.last_attempt == number)
    return Job.update(change).where(current)


@Statement
def finish_jobs_of_only_step(count: V, run: V) -> Any:
    """239 / 2 us."""
    only = (Step.run == run) & (Step.number == 1) & Step.name.is_null()
    return Step.update({Step.unfinished: Step.unfinished - count}).where(only)


@Statement
def charge(amount: V, submitter: V) -> Any:
    """210 / 1 us."""
    return Submitter.update({Submitter.used: Submitter.used + amount}).where(Submitter.id == submitter)


@Statement
def add_usage(
    begin: V, length: V, worker: V, submitter: V, attempts: V, succeeded: V, seconds: V, cores: V, gpus: V, memory: V
) -> Any:
    """783 / 1 us, on a busy machine. A commit adds one row per person and machine whose attempts have ended."""
    sums: dict[Any, V] = {
        Spent.attempts: attempts, Spent.succeeded: succeeded, Spent.seconds: seconds, Spent.cores: cores,
        Spent.gpus: gpus, Spent.memory: memory,
    }  # fmt: skip
    keys: dict[Any, V] = {
        Spent.begin: begin,
        Spent.length: length,
        Spent.worker: worker,
        Spent.submitter: submitter,
    }
    more = {column: column + getattr(EXCLUDED, column.column_name) for column in sums}
    return Spent.insert(keys | sums).on_conflict(conflict_target=list(keys), update=more)


@Statement
def add_log_chunk(job: V, number: V, first: V, data: V) -> Any:
    """91 / 3 us."""
    return LogChunk.insert({LogChunk.job: job, LogChunk.number: number, LogChunk.first: first, LogChunk.data: data})


@Statement
def set_log_size(size: V, job: V, number: V) -> Any:
    """138 / 2 us."""
    return Attempt.update({Attempt.log_size: size}).where((Attempt.job == job) & (Attempt.number == number))


@Statement
def find_blob(digest: V) -> Any:
    """115 / 1 us."""
    return Blob.select(Blob.size, Blob.upload).where(Blob.digest == digest)


@Statement
def lock_blob(digest: V) -> Any:
    """102 / 1 us."""
    return Locked(find_blob.build(digest), "FOR SHARE")


@Statement
def add_artifact(job: V, number: V, path: V, digest: V, size: V) -> Any:
    """103 / 3 us."""
    return Artifact.insert({
        Artifact.job: job, Artifact.number: number, Artifact.path: path, Artifact.digest: digest, Artifact.size: size
    })  # fmt: skip


# A submit


@Statement
def submission_under(submitter: V, key: V) -> Any:
    """199 / 1 us."""
    query = Submission.select(Submission.digest, Submission.run)
    return query.where((Submission.submitter == submitter) & (Submission.key == key))


@Statement
def add_submission(submitter: V, key: V, digest: V, run: V) -> Any:
    """214 / 2 us."""
    row = {Submission.submitter: submitter, Submission.key: key, Submission.digest: digest, Submission.run: run}
    return Submission.insert(row).on_conflict(action="nothing", conflict_target=[Submission.submitter, Submission.key])


@Statement
def spec_under(digest: V) -> Any:
    """64 / 1 us."""
    return Spec.select(Spec.id, Spec.job_class).where(Spec.digest == digest)


@Statement
def add_spec(digest: V, body: V, job_class: V) -> Any:
    """62 / 2 us."""
    row = {Spec.digest: digest, Spec.body: body, Spec.job_class: job_class}
    return Spec.insert(row).on_conflict(action="nothing", conflict_target=[Spec.digest])


@Statement
def add_spec_file(spec: V, digest: V) -> Any:
    """57 / 1 us."""
    row = {SpecFile.spec: spec, SpecFile.digest: digest}
    return SpecFile.insert(row).on_conflict(action="nothing", conflict_target=[SpecFile.digest, SpecFile.spec])


@Statement
def class_under(digest: V) -> Any:
    """60 / 1 us."""
    return JobClass.select(JobClass.id).where(JobClass.digest == digest)


@Statement
def add_run(
    name: V,
    submitter: V,
    labels: V,
    warnings: V,
    retry_of: V,
    jobs: V,
    steps: V,
    now: V,
    origin: V,
    next_index: V,
    store: V,
    workspace: V,
    traceparent: V,
) -> Any:
    """218 / 7 us. All jobs of a new run are queued."""
    return Run.insert({
        Run.name: name, Run.submitter: submitter, Run.labels: labels, Run.warnings: warnings, Run.retry_of: retry_of,
        Run.jobs: jobs, Run.steps: steps, Run.queued: jobs, Run.created_at: now,
        Run.origin: origin, Run.next_index: next_index, Run.artifact_store: store,
        Run.workspace: workspace, Run.traceparent: traceparent,
    }).returning(Run.id)  # fmt: skip


@Statement
def add_label(run: V, name: V, value: V) -> Any:
    """74 / 2 us."""
    return RunLabel.insert({RunLabel.run: run, RunLabel.name: name, RunLabel.value: value})


def _insertion(model: Any, fields: Sequence[Any]) -> Statement:
    return Statement(lambda *values: model.insert(dict(zip(fields, values, strict=True))), len(fields))


# The lease check: it runs every few seconds, and holds the only writer for as long as it takes.


@Statement
def expired_attempts(clock: V, most: V) -> Any:
    """328 / 4 us."""
    query = attempts_where(LIVE, Attempt.lease_clock < clock)
    return lock_attempts(query.order_by(Attempt.lease_clock).limit(most))


@Statement
def overdue_attempts(clock: V, most: V) -> Any:
    """525 / 4 us."""
    return lock_attempts(attempts_where(LIVE, Attempt.deadline_clock < clock).limit(most))


@Statement
def wake_jobs(clock: V) -> Any:
    """57 / 5 us."""
    return Job.update({Job.ready: 1, Job.wait_clock: None}).where(Job.wait_clock <= clock)


@Statement
def stop_avoiding(clock: V) -> Any:
    """60 / 6 us."""
    return Job.update({Job.avoid: 0, Job.avoid_clock: None}).where(Job.avoid_clock <= clock)


@Statement
def silent_workers(clock: V) -> Any:
    """96 / 7 us."""
    silent = (Worker.online == 1) & (Worker.seen_clock < clock)
    return Worker.update({Worker.online: 0}).where(silent).returning(Worker.name)


@Statement
def lock_lease_clock() -> Any:
    """50 / 1 us."""
    return Locked(LeaseClock.select(LeaseClock.value, LeaseClock.mover, LeaseClock.moves))


@Statement
def move_lease_clock(value: V, mover: V) -> Any:
    """56 / 2 us."""
    change = {LeaseClock.value: value, LeaseClock.mover: mover, LeaseClock.moves: LeaseClock.moves + 1}
    return LeaseClock.update(change)


#: The columns of a new job, and of an event without its number. Values are always given in this order.
JOB_FIELDS = (Job.id, Job.step, Job.spec, Job.job_class, Job.submitter, Job.rank, Job.params, Job.ready, Job.state)
EVENT_FIELDS = tuple(field for field in Event._meta.sorted_fields if field is not Event.seq)
# add_step 170 / 2 us; add_job 133 / 8 us; add_event 91 / 4 us.
add_step = _insertion(Step, columns(StepRow, Step))
add_job = _insertion(Job, JOB_FIELDS)
add_event = _insertion(Event, EVENT_FIELDS)


def insert_events(reader: Reader, events: Sequence[Sequence[Any]]) -> None:
    if events:
        add_event.run_many(reader, events)


def statements() -> dict[str, Statement]:
    """Every statement by name, for the test and the benchmark."""
    found = {name: value for name, value in globals().items() if isinstance(value, Statement)}
    return found | {f"runs_among({count})": runs_among(count) for count in (1, 3)}
