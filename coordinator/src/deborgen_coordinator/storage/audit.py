"""Checks of the database: each is a sentence that must never be true, and a query for the rows where it is.

A query returns a job, a run or a digest, and the attempt if there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from peewee import JOIN, SQL, Case, fn

from deborgen_shared.program_events import JOB_EVENT
from deborgen_shared.states import INFRASTRUCTURE_FAILURES, PROGRAM_FAILURES, TERMINAL, Outcome, Phase, State

from .. import ids
from .database import DatabaseConnection, Row
from .models import (
    Artifact,
    Attempt,
    Blob,
    Checkpoint,
    CheckpointFile,
    Event,
    Image,
    Job,
    LogChunk,
    Run,
    SpecFile,
    Step,
)
from .statements import Reader, Statement

LOST, DUPLICATED, UNEXPECTED = "lost", "duplicated", "unexpected"

NONE = SQL("NULL")
ONE = SQL("1")
#: A literal, not a parameter: PostgreSQL treats two parameters as different expressions even if their values are equal.
RUN_SIZE = SQL(str(ids.key(1, 0)))


class Check(NamedTuple):
    """A sentence that must never be true. `subject` says what the query's first column identifies."""

    kind: str
    name: str
    sentence: str
    subject: str
    query: Any

    def rows(self, reader: Reader) -> list[Row]:
        """The rows for which the sentence is true, each with its attempt if it has one."""
        return _compiled(self.name).rows(reader)


@cache
def _compiled(name: str) -> Statement:
    """The query of a check, compiled once: the simulation of a pool repeats the checks thousands of times."""
    [check] = (check for check in CHECKS if check.name == name)
    return Statement(lambda: check.query)


def _words(words: Any) -> list[str]:
    """The words of states or outcomes, as the database stores them."""
    return sorted(word.value for word in words)


#: The jobs of a run and of a step, by the span of their ids; and the run that an event's job belongs to.
OF_RUN = Job.id.between(Run.id * RUN_SIZE + 1, Run.id * RUN_SIZE + (ids.key(1, 0) - 1))
_SPAN = (Step.run * RUN_SIZE + Step.first_index, Step.run * RUN_SIZE + Step.last_index)
OF_STEP = Job.id.between(*_SPAN) | Job.point.between(*_SPAN)
EVENTS_RUN = Event.job / RUN_SIZE

JOBS_OF_RUN = Job.select(fn.COUNT(Job.id)).where(OF_RUN)
JOBS_OF_STEP = Job.select(fn.COUNT(Job.id)).where(OF_STEP)
#: The job of a check that said no: it has succeeded, but its program has failed.
SAYS_NO = (Attempt.outcome == Outcome.FAILED.value) & (fn.COALESCE(Job.verified, 1) == 0)
#: Another job of a loop.
Other = Job.alias()
ATTEMPT = (Attempt.job, Attempt.number)
LIVE = Attempt.outcome.is_null()


def _count_of(condition: Any) -> Any:
    return fn.SUM(Case(None, [(condition, 1)], 0))


def _wrong_counts() -> Any:
    """The runs whose stored counts differ from the actual number of their jobs in each state."""
    counts = [_count_of(Job.state == state.value).alias(state.value) for state in State]
    counted = Job.select((Job.id / RUN_SIZE).alias("run_id"), *counts).group_by(Job.id / RUN_SIZE).alias("counted")
    wrong = None
    for state in State:
        other = getattr(Run, state.value) != getattr(counted.c, state.value)
        wrong = other if wrong is None else wrong | other
    return Run.select(Run.id, NONE).join(counted, on=(counted.c.run_id == Run.id)).where(wrong)


def _per_job(*columns: Any) -> Any:
    """Aggregates over the attempts of each job."""
    return Attempt.select(Attempt.job, *columns).group_by(Attempt.job).alias("had")


def _attempts_missing() -> Any:
    had = _per_job(fn.COUNT(Attempt.number).alias("n"))
    query = Job.select(Job.id, Job.last_attempt).join(had, JOIN.LEFT_OUTER, on=(had.c.job_id == Job.id))
    return query.where(fn.COALESCE(had.c.n, 0) < Job.last_attempt)


def _attempts_charged() -> Any:
    released = Attempt.outcome == Outcome.RELEASED.value
    had = _per_job(fn.SUM(Case(None, [(released, 0)], 1)).alias("used"))
    used = fn.COALESCE(had.c.used, 0)
    # If a job is canceled when its attempt is released, that attempt stays counted.
    canceled = (Job.state == State.CANCELED.value) & (Job.attempts == used + 1)
    query = Job.select(Job.id, NONE).join(had, JOIN.LEFT_OUTER, on=(had.c.job_id == Job.id))
    return query.where(Job.attempts != used, ~canceled)


def _with_job(*columns: Any) -> Any:
    return Attempt.select(*columns).join(Job, on=(Job.id == Attempt.job))


def _state_and_outcome() -> Any:
    def ended(state: State, outcome: Any) -> Any:
        return (Job.state == state.value) & outcome

    final = [Outcome.SUCCEEDED.value, Outcome.CANCELED.value]
    right = (
        ended(State.SUCCEEDED, (Attempt.outcome == Outcome.SUCCEEDED.value) | SAYS_NO)
        | ended(State.FAILED, Attempt.outcome.in_(_words(PROGRAM_FAILURES | INFRASTRUCTURE_FAILURES)))
        | ended(State.CANCELED, Attempt.outcome != Outcome.SUCCEEDED.value)
        | ended(State.QUEUED, Attempt.outcome.not_in(final))
    )
    return _with_job(*ATTEMPT).where(Attempt.number == Job.last_attempt, Attempt.outcome.is_null(False), ~right)


def _other_jobs_of_loop(condition: Any) -> Any:
    """For jobs of loops: the other jobs of the same loop that meet the condition."""
    return fn.EXISTS(Other.select(ONE).where(Other.point == Job.point, condition))


def _stopped_loops() -> Any:
    """The last jobs of loops that should have gone on."""
    check_due = (Job.phase == Phase.WORK.value) & (Job.state == State.SUCCEEDED.value)
    checked = _other_jobs_of_loop((Other.round == Job.round) & (Other.phase == Phase.VERIFY.value))
    work_due = (Job.verified == 0) & (Job.state == State.SUCCEEDED.value)
    worked = _other_jobs_of_loop((Other.round == Job.round + 1) & (Other.phase == Phase.WORK.value))
    return Job.select(Job.id, NONE).where(Job.point.is_null(False), (check_due & ~checked) | (work_due & ~worked))


def _continued_loops() -> Any:
    """The jobs of loops that follow a job after which none should have come, or not yet."""
    goes_on = (Other.state == State.SUCCEEDED.value) & (fn.COALESCE(Other.verified, 0) == 0)
    same_round = (Other.round == Job.round) & (Other.phase == Phase.WORK.value) & (Job.phase == Phase.VERIFY.value)
    before = (Other.round < Job.round) | same_round
    return Job.select(Job.id, NONE).where(Job.point.is_null(False), _other_jobs_of_loop(before & ~goes_on))


def _wrong_answers() -> Any:
    """The jobs whose answer does not match the end of their last attempt; only a check has an answer."""
    yes = (Job.phase == Phase.VERIFY.value) & (Attempt.outcome == Outcome.SUCCEEDED.value)
    answer = Case(None, [(yes, 1)], SQL("-1"))
    no = (Job.verified == 0) & (Job.phase == Phase.VERIFY.value) & (Attempt.outcome == Outcome.FAILED.value)
    wrong = (fn.COALESCE(Job.verified, SQL("-1")) != answer) & ~fn.COALESCE(no, SQL("FALSE"))
    return _with_job(*ATTEMPT).where(Attempt.number == Job.last_attempt, wrong)


def _jobs_with_step() -> Any:
    own_step = (Step.run == Job.id / RUN_SIZE) & (Step.number == Job.step)
    return Job.select(Job.id, NONE).join(Step, on=own_step)


def _grants() -> Any:
    return (Event.job == Attempt.job) & (Event.attempt == Attempt.number) & (Event.type == "lease.granted")


def _chunks(condition: Any) -> Any:
    """The chunks whose first byte, compared with the end of the previous chunk, meets the condition."""
    ends = fn.LAG(LogChunk.first + fn.LENGTH(LogChunk.data)).over(
        partition_by=[LogChunk.job, LogChunk.number], order_by=[LogChunk.first]
    )
    pieces = LogChunk.select(LogChunk.job, LogChunk.number, LogChunk.first, fn.COALESCE(ends, 0).alias("wanted"))
    pieces = pieces.alias("chunks")
    query = LogChunk.select(pieces.c.job_id, pieces.c.number).from_(pieces)
    return query.where(condition(pieces.c.first, pieces.c.wanted))


def _log_size() -> Any:
    bytes_ = fn.SUM(fn.LENGTH(LogChunk.data)).alias("bytes")
    chunks = LogChunk.select(LogChunk.job, LogChunk.number, bytes_).group_by(LogChunk.job, LogChunk.number)
    chunks = chunks.alias("chunks")
    same = (chunks.c.job_id == Attempt.job) & (chunks.c.number == Attempt.number)
    query = Attempt.select(*ATTEMPT).join(chunks, JOIN.LEFT_OUTER, on=same)
    return query.where(Attempt.log_digest.is_null(), Attempt.log_size != fn.COALESCE(chunks.c.bytes, 0))


def _wrong_blob(model: Any, digest: Any, size: Any) -> Any:
    query = model.select(model.job, model.number).join(Blob, JOIN.LEFT_OUTER, on=(Blob.digest == digest))
    return query.where(Blob.size.is_null() | (Blob.size != size))


def _of_attempt(model: Any) -> Any:
    return (model.job == Attempt.job) & (model.number == Attempt.number)


def _input_blob() -> Any:
    waiting = Job.select(ONE).where(Job.spec == SpecFile.spec, Job.finished_at.is_null())
    query = SpecFile.select(SpecFile.digest, NONE).distinct()
    query = query.join(Blob, JOIN.LEFT_OUTER, on=(Blob.digest == SpecFile.digest))
    return query.where(Blob.digest.is_null(), fn.EXISTS(waiting))


def _program_events() -> Any:
    sender = (Attempt.job == Event.job) & (Attempt.number == Event.attempt)
    query = Event.select(Event.job, Event.attempt).join(Attempt, JOIN.LEFT_OUTER, on=sender)
    query = query.where(Event.type == JOB_EVENT).group_by(Event.job, Event.attempt, Attempt.events)
    return query.having(fn.COUNT(Event.seq) > fn.COALESCE(Attempt.events, 0))


def _holder() -> Any:
    return Attempt.select(ONE).where(Attempt.job == Job.id, Attempt.number == Job.last_attempt, LIVE)


def _twice(condition: Any) -> Any:
    query = Attempt.select(Attempt.job, fn.MAX(Attempt.number)).where(condition).group_by(Attempt.job)
    return query.having(fn.COUNT(Attempt.number) > 1)


SUBMITTED = Event.type == "run.submitted"
SEALED = Attempt.log_digest.is_null(False)
NO_RESULT = LIVE | Attempt.outcome.in_([Outcome.LOST.value, Outcome.RELEASED.value])

CHECKS = [
    Check(
        LOST, "jobs_missing", "the run has fewer jobs than were submitted", "run",
        Run.select(Run.id, NONE).where(Run.jobs > JOBS_OF_RUN),
    ),
    Check(
        UNEXPECTED, "jobs_too_many", "the run has more jobs than were submitted", "run",
        Run.select(Run.id, NONE).where(Run.jobs < JOBS_OF_RUN),
    ),
    Check(UNEXPECTED, "run_counts", "the run's counts do not match its jobs", "run", _wrong_counts()),
    Check(
        UNEXPECTED, "step_counts", "the step's counts do not match its jobs", "run",
        Step.select(Step.run, NONE).where(
            (Step.jobs != JOBS_OF_STEP) | (Step.unfinished != JOBS_OF_STEP.where(Job.finished_at.is_null()))
        ),
    ),
    Check(LOST, "attempts_missing", "attempts of the job are missing", "job", _attempts_missing()),
    Check(
        UNEXPECTED, "attempts_beyond", "the job has attempts after its last one", "job",
        _with_job(*ATTEMPT).where(Attempt.number > Job.last_attempt),
    ),
    Check(
        UNEXPECTED, "attempts_charged", "the job's number of counted attempts is wrong", "job",
        _attempts_charged(),
    ),
    Check(DUPLICATED, "live_twice", "the job has two live attempts", "job", _twice(LIVE)),
    Check(
        DUPLICATED, "succeeded_twice", "the job succeeded twice", "job",
        _twice(Attempt.outcome == Outcome.SUCCEEDED.value),
    ),
    Check(
        LOST, "running_without_attempt", "the job is running, but has no live attempt", "job",
        Job.select(Job.id, Job.last_attempt).where(Job.state == State.RUNNING.value, ~fn.EXISTS(_holder())),
    ),
    Check(
        UNEXPECTED, "held_without_running", "the job is not running, but has a live attempt", "job",
        _with_job(*ATTEMPT).where(
            LIVE, (Job.state != State.RUNNING.value) | (Attempt.number != Job.last_attempt)
        ),
    ),
    Check(
        UNEXPECTED, "state_and_outcome", "the job's state does not match the outcome of its last attempt", "job",
        _state_and_outcome(),
    ),
    Check(
        UNEXPECTED, "after_the_end", "the job was retried after a final attempt", "job",
        _with_job(*ATTEMPT).where(
            Attempt.number < Job.last_attempt,
            Attempt.outcome.in_([Outcome.SUCCEEDED.value, Outcome.CANCELED.value]),
        ),
    ),
    Check(
        UNEXPECTED, "exit_code", "the attempt succeeded with a nonzero exit code", "job",
        Attempt.select(*ATTEMPT).where(Attempt.outcome == Outcome.SUCCEEDED.value, Attempt.exit_code != 0),
    ),
    Check(
        LOST, "stuck", "the job is queued and nothing blocks it, but it cannot be claimed", "job",
        _jobs_with_step().where(
            Job.state == State.QUEUED.value, Job.ready == 0, Job.wait_clock.is_null(), Step.blockers == 0
        ),
    ),
    Check(
        UNEXPECTED, "ahead_of_its_need", "the job can be claimed before the steps that it needs have succeeded", "job",
        _jobs_with_step().where(Step.blockers > 0, (Job.ready == 1) | (Job.last_attempt > 0)),
    ),
    Check(
        LOST, "grant_not_recorded", "the history lacks the grant of the attempt", "job",
        Attempt.select(*ATTEMPT).join(Event, JOIN.LEFT_OUTER, on=_grants()).where(Event.seq.is_null()),
    ),
    Check(
        DUPLICATED, "granted_twice", "the history says that the attempt was granted twice", "job",
        Event.select(Event.job, Event.attempt).where(Event.type == "lease.granted")
        .group_by(Event.job, Event.attempt).having(fn.COUNT(Event.seq) > 1),
    ),
    Check(
        LOST, "grant_without_attempt", "the history contains the grant of an attempt that does not exist", "job",
        Event.select(Event.job, Event.attempt).join(Attempt, JOIN.LEFT_OUTER, on=_grants())
        .where(Event.type == "lease.granted", Attempt.number.is_null()),
    ),
    Check(
        DUPLICATED, "ended_twice", "the history says that the job ended twice", "job",
        Event.select(Event.job, NONE).where(Event.type.in_([f"job.{state}" for state in _words(TERMINAL)]))
        .group_by(Event.job).having(fn.COUNT(Event.seq) > 1),
    ),
    Check(
        LOST, "log_hole", "bytes are missing in the middle of the log", "job",
        _chunks(lambda first, wanted: first > wanted),
    ),
    Check(
        DUPLICATED, "log_overlap", "bytes of the log are stored twice", "job",
        _chunks(lambda first, wanted: first < wanted),
    ),
    Check(LOST, "log_size", "the log's size does not match its attempt", "job", _log_size()),
    Check(
        LOST, "log_unfinished", "the log was sealed before it was complete", "job",
        Attempt.select(*ATTEMPT).where(SEALED, Attempt.log_size < Attempt.announced_size),
    ),
    Check(
        UNEXPECTED, "log_beyond", "the log is longer than its result announced", "job",
        Attempt.select(*ATTEMPT).where(
            Attempt.log_size > Attempt.announced_size,
            Attempt.outcome.not_in([Outcome.RELEASED.value, Outcome.ERROR.value]),
        ),
    ),
    Check(
        DUPLICATED, "log_sealed_and_not", "the log is sealed, but its chunks still exist", "job",
        Attempt.select(*ATTEMPT).distinct().join(LogChunk, on=_of_attempt(LogChunk)).where(SEALED),
    ),
    Check(
        LOST, "log_blob", "the blob of a sealed log is missing or has another size", "job",
        _wrong_blob(Attempt, Attempt.log_digest, Attempt.log_size).where(SEALED),
    ),
    Check(
        LOST, "artifact_blob", "the blob of an artifact is missing or has another size", "job",
        _wrong_blob(Artifact, Artifact.digest, Artifact.size),
    ),
    Check(
        UNEXPECTED, "artifact_of_nothing", "an artifact belongs to an attempt without a result", "job",
        Artifact.select(Artifact.job, Artifact.number).distinct()
        .join(Attempt, on=_of_attempt(Artifact)).where(NO_RESULT),
    ),
    Check(
        LOST, "image_blob", "the blob of an image is missing", "job",
        Image.select(Image.job, Image.number).join(Blob, JOIN.LEFT_OUTER, on=(Blob.digest == Image.archive))
        .where(Image.archive.is_null(False), Blob.size.is_null()),
    ),
    Check(
        LOST, "checkpoint_blob", "the blob of a checkpoint is missing or has another size", "job",
        CheckpointFile.select(CheckpointFile.job, NONE)
        .join(Blob, JOIN.LEFT_OUTER, on=(Blob.digest == CheckpointFile.digest))
        .where(Blob.size.is_null() | (Blob.size != CheckpointFile.size)),
    ),
    Check(
        UNEXPECTED, "checkpoint_after_success", "the job has succeeded, but its checkpoint is kept", "job",
        Checkpoint.select(Checkpoint.job, NONE).join(Job, on=(Job.id == Checkpoint.job))
        .where(Job.state == State.SUCCEEDED.value),
    ),
    Check(LOST, "loop_stopped", "the loop should have gone on after the job", "job", _stopped_loops()),
    Check(
        UNEXPECTED, "loop_continued", "the loop went on with the job, although the one before it had not let it",
        "job", _continued_loops(),
    ),
    Check(UNEXPECTED, "answer", "the answer of the check does not match its attempt", "job", _wrong_answers()),
    Check(
        UNEXPECTED, "next_index", "a loop will add a job under the number of this one", "job",
        Job.select(Job.id, NONE).join(Run, on=(Run.id == Job.id / RUN_SIZE)).where(
            Job.point.is_null(False), Job.id >= Run.id * RUN_SIZE + Run.next_index
        ),
    ),
    Check(LOST, "input_blob", "the blob of an input file is missing", "blob", _input_blob()),
    Check(
        DUPLICATED, "program_events", "the history has more program events than the attempt has sent", "job",
        _program_events(),
    ),
    Check(
        DUPLICATED, "submitted_twice", "the history says that the run was submitted twice", "run",
        Event.select(EVENTS_RUN, NONE).where(SUBMITTED).group_by(EVENTS_RUN).having(fn.COUNT(Event.seq) > 1),
    ),
    Check(
        LOST, "run_missing", "the history contains a run that does not exist", "run",
        Event.select(EVENTS_RUN, NONE).join(Run, JOIN.LEFT_OUTER, on=(Run.id == EVENTS_RUN))
        .where(SUBMITTED, Run.id.is_null()),
    ),
]  # fmt: skip


def totals(reader: DatabaseConnection) -> dict[str, int]:
    """The number of rows per table, to show that the audit examined something."""
    tables = (Run, Job, Attempt, Event, Artifact, Blob)
    return {f"{each._meta.table_name}s": int(reader.value(each.select(fn.COUNT(ONE)))) for each in tables}


def states(reader: DatabaseConnection) -> list[tuple[int, str]]:
    """Every job and its state, in the order of the jobs."""
    return reader.rows(Job.select(Job.id, Job.state).order_by(Job.id))


def moves(reader: DatabaseConnection, first: int, last: int) -> list[tuple[int, int, str, str | None, str]]:
    """The state changes of these jobs in the history, in order: job, seq, type, old state, new state."""
    query = Event.select(Event.job, Event.seq, Event.type, Event.old_state, Event.new_state)
    query = query.where(Event.job.between(first, last), Event.new_state.is_null(False))
    return reader.rows(query.order_by(Event.job, Event.seq))


def blockers(reader: DatabaseConnection) -> Iterator[tuple[int, int, int, int]]:
    """For each step that needs others: run, step, the stored number of blockers, and the correct one."""
    unfinished = fn.EXISTS(Job.select(ONE).where(OF_STEP, Job.state != State.SUCCEEDED.value))
    query = Step.select(Step.run, Step.number, Step.name, Step.needs, Step.blockers, unfinished)
    rows = reader.rows(query.join(Run).where(Run.steps > 1).order_by(Step.run, Step.number))
    open_steps = {(run, name) for run, _, name, _, _, still in rows if still}
    for run, number, _, needs, count, _ in rows:
        yield run, number, count, sum((run, need) in open_steps for need in json.loads(needs))
