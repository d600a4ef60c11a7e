"""Every table, once: its columns, what each row must satisfy, its keys and its indexes, for SQLite and for PostgreSQL.

A fresh database is made from these models (`schema.py`), queries are built on them, and backups walk through them. What
changes here comes with a step in migrations/, and a test compares the two ways to get there.

A job's id is its run's number times 2^20 plus its index: the jobs of a run lie together, and the order of ids is the
order of submission. Times `*_at` are wall clock seconds, for the record; `*_clock` are on the lease clock.

The models belong to no database: a query is executed by the connection that it is given to (`connection.rows(query)`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peewee import (
    SQL,
    BigAutoField,
    BigIntegerField,
    BlobField,
    Check,
    CompositeKey,
    DoubleField,
    ForeignKeyField,
    IntegerField,
    Model,
    TextField,
)

from deborgen_shared.states import Outcome, Role, State, WorkerState

UNIQUE = SQL("UNIQUE")
#: The states that a worker's row can have: the coordinator derives the other two.
WORKER_STATES = [state for state in WorkerState if state not in (WorkerState.RESTING, WorkerState.OFFLINE)]


def default(value: float | str) -> SQL:
    """The value that the database puts where none is given."""
    return SQL(f"DEFAULT '{value}'" if isinstance(value, str) else f"DEFAULT {value}")


class Key(BigIntegerField):
    """A number that we choose ourselves as a row's key. SQLite keeps the row under it, without an index beside it."""

    field_type = "KEY"


class Checked(BigIntegerField):
    """A number that satisfies a condition, which is written with the column's name in braces."""

    condition = "{} >= 0"

    def bind(self, model: Any, name: str, set_attribute: bool = True) -> None:
        super().bind(model, name, set_attribute)
        self.constraints = [*(self.constraints or ()), Check(self.condition.format(self.column_name))]


class Count(Checked):
    """A number that is never negative."""


class Positive(Checked):
    condition = "{} > 0"


class Flag(Checked):
    condition = "{} IN (0, 1)"


class OneOf(TextField):
    """One of a few words."""

    def __init__(self, words: Iterable[str], **options: Any) -> None:
        super().__init__(**options)
        self.words = ", ".join(f"'{word}'" for word in words)

    def bind(self, model: Any, name: str, set_attribute: bool = True) -> None:
        super().bind(model, name, set_attribute)
        self.constraints = [*(self.constraints or ()), Check(f"{self.column_name} IN ({self.words})")]


class Reference(ForeignKeyField):
    """The key of a row of another table, without an index of its own: each index is named where it is needed."""

    field_type = "BIGINT"

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model, index=False, backref="+", **options)


class Table(Model):
    class Meta:
        database = None
        legacy_table_names = False


class LeaseClock(Table):
    """One row: where the lease clock stands, which process moves it, and how many turns were made."""

    id = IntegerField(primary_key=True, constraints=[Check("id = 1")])
    value = DoubleField()
    sweeper = TextField(constraints=[default("")])
    turns = BigIntegerField(constraints=[default(0)])


class Token(Table):
    id = TextField(primary_key=True)
    role = OneOf(sorted(Role))
    name = TextField()
    digest = TextField()
    created_at = DoubleField()
    expires_at = DoubleField(null=True)
    last_used_at = DoubleField(null=True)
    revoked_at = DoubleField(null=True)


class Submitter(Table):
    """A person who submits, and what their ended attempts used, in seconds times cpus."""

    id = BigAutoField()
    name = TextField(constraints=[UNIQUE])
    used = DoubleField(constraints=[default(0)])


class Run(Table):
    """A submission, with the number of its jobs in each state."""

    id = BigAutoField()
    name = TextField()
    submitter = Reference(Submitter)
    labels = TextField()
    warnings = TextField()
    retry_of = Reference("self", null=True, column_name="retry_of")
    jobs = Positive()
    steps = Positive()
    queued = Count()
    running = Count(constraints=[default(0)])
    succeeded = Count(constraints=[default(0)])
    failed = Count(constraints=[default(0)])
    canceled = Count(constraints=[default(0)])
    created_at = DoubleField()
    finished_at = DoubleField(null=True)
    pruned_at = DoubleField(null=True)

    class Meta:
        constraints = (
            Check("queued + running + succeeded + failed + canceled = jobs"),
            Check("(queued + running = 0) = (finished_at IS NOT NULL)"),
        )


Run.add_index(Run.submitter, Run.id, name="run_submitter")
Run.add_index(Run.id, where=Run.finished_at.is_null(), name="run_unfinished")
Run.add_index(Run.id, where=(Run.failed > 0), name="run_failed")
Run.add_index(Run.id, where=(Run.canceled > 0), name="run_canceled")
Run.add_index(Run.finished_at, where=Run.finished_at.is_null(False) & Run.pruned_at.is_null(), name="run_prunable")


# Where there is no rowid the columns of the key come first, in its order: the quick_check of SQLite 3.40 expects that.
class RunLabel(Table):
    name = TextField()
    value = TextField()
    run = Reference(Run)

    class Meta:
        primary_key = CompositeKey("name", "value", "run")
        without_rowid = True


class Submission(Table):
    """What was submitted under an idempotency key."""

    submitter = Reference(Submitter)
    key = TextField()
    digest = TextField()
    run = Reference(Run)

    class Meta:
        primary_key = CompositeKey("submitter", "key")
        without_rowid = True


class JobClass(Table):
    """The needs that the jobs of a class share. They may be long: the digest tells them apart."""

    id = BigAutoField()
    digest = TextField(constraints=[UNIQUE])
    needs = TextField(constraints=[default("")])

    class Meta:
        table_name = "class"


class Spec(Table):
    id = BigAutoField()
    digest = TextField(constraints=[UNIQUE])
    body = TextField()
    job_class = Reference(JobClass, column_name="class_id")


class SpecFile(Table):
    digest = TextField()
    spec = Reference(Spec)

    class Meta:
        primary_key = CompositeKey("digest", "spec")
        without_rowid = True


class Step(Table):
    """`blockers` counts the needed steps that have not succeeded; `unfinished` the jobs of this step still to end."""

    run = Reference(Run)
    number = BigIntegerField()
    name = TextField(null=True)
    needs = TextField()
    spec = Reference(Spec)
    first_index = BigIntegerField()
    last_index = BigIntegerField(constraints=[Check("last_index >= first_index")])
    jobs = Positive()
    unfinished = Count()
    blockers = Count()

    class Meta:
        primary_key = CompositeKey("run", "number")
        without_rowid = True


class Worker(Table):
    id = BigAutoField()
    name = TextField(constraints=[UNIQUE])
    session = TextField()
    hostname = TextField()
    version = TextField()
    labels = TextField()
    capacity = TextField()
    free = TextField()
    reason = TextField()
    paused = Flag(constraints=[default(0)])
    drain = Flag(constraints=[default(0)])
    online = Flag()
    failures = BigIntegerField(constraints=[default(0)])
    rests = BigIntegerField(constraints=[default(0)])
    rest_clock = DoubleField(constraints=[default(0)])
    seen_clock = DoubleField()
    seen_at = DoubleField()
    state = OneOf(WORKER_STATES, constraints=[default(WorkerState.OPEN.value)])
    until_at = DoubleField(null=True)
    metrics = TextField(null=True)


class Session(Table):
    """One life of a worker process, and the attempts that its registration found lost."""

    worker = Reference(Worker)
    id = TextField()
    started_at = DoubleField()
    lost = TextField()

    class Meta:
        primary_key = CompositeKey("worker", "id")
        without_rowid = True


class Claim(Table):
    id = BigAutoField()
    worker = Reference(Worker)
    request_id = TextField()
    created_at = DoubleField()

    class Meta:
        constraints = (SQL("UNIQUE (worker_id, request_id)"),)


class Job(Table):
    id = Key(primary_key=True)
    step = BigIntegerField()
    spec = Reference(Spec)
    job_class = Reference(JobClass, column_name="class_id")
    submitter = Reference(Submitter)
    rank = BigIntegerField()
    params = TextField()
    state = OneOf(State)
    ready = Flag()
    avoid = BigIntegerField(constraints=[default(0)])
    avoid_clock = DoubleField(null=True)
    wait_clock = DoubleField(null=True)
    attempts = Count(constraints=[default(0)])
    last_attempt = BigIntegerField(constraints=[default(0), Check("last_attempt >= attempts")])
    cancel_requested = Flag(constraints=[default(0)])
    reason = TextField(constraints=[default("")])
    worker = Reference(Worker, null=True)
    exit_code = BigIntegerField(null=True)
    result = TextField(null=True)
    warnings = TextField(null=True)
    progress = DoubleField(null=True)
    message = TextField(null=True)
    started_at = DoubleField(null=True)
    finished_at = DoubleField(null=True)

    class Meta:
        constraints = (
            Check(f"ready = 0 OR (state = '{State.QUEUED}' AND wait_clock IS NULL)"),
            Check(f"state = '{State.QUEUED}' OR (wait_clock IS NULL AND avoid_clock IS NULL)"),
            Check(
                f"state != '{State.RUNNING}' OR (started_at IS NOT NULL AND worker_id IS NOT NULL AND last_attempt > 0)"
            ),
            Check(f"state NOT IN ('{State.SUCCEEDED}', '{State.FAILED}') OR attempts > 0"),
            Check(
                f"(state IN ('{State.SUCCEEDED}', '{State.FAILED}', '{State.CANCELED}')) = (finished_at IS NOT NULL)"
            ),
        )


Job.add_index(Job.job_class, Job.submitter, Job.avoid, Job.rank, Job.id, where=(Job.ready == 1), name="job_lane")
Job.add_index(Job.wait_clock, where=Job.wait_clock.is_null(False), name="job_wait")
Job.add_index(Job.avoid_clock, where=Job.avoid_clock.is_null(False), name="job_avoid")
Job.add_index(Job.state, Job.id, name="job_state")
Job.add_index(Job.worker, Job.id, where=Job.worker.is_null(False), name="job_worker")


class Attempt(Table):
    """`outcome` is null while the attempt lives; a live attempt has a lease, and no other has. `confirmed` says that a
    heartbeat or a result has named the attempt. `started_at` is the claim, `began_at` when the program really began.
    `log_told` is the size of the log by the result's word. `events` counts the events that the program has sent to the
    history, dropped ones included."""

    job = Reference(Job)
    number = Positive()
    worker = Reference(Worker)
    session = TextField()
    claim = Reference(Claim)
    confirmed = Flag(constraints=[default(0)])
    granted_clock = DoubleField()
    deadline_clock = DoubleField()
    lease_clock = DoubleField(null=True)
    started_at = DoubleField()
    finished_at = DoubleField(null=True)
    outcome = OneOf(Outcome, null=True)
    reason = TextField(constraints=[default("")])
    exit_code = BigIntegerField(null=True)
    seconds = DoubleField(null=True)
    cpu_seconds = DoubleField(null=True)
    peak_memory = BigIntegerField(null=True)
    image = TextField(constraints=[default("")])
    digest = TextField(null=True)
    stale = Flag(constraints=[default(0)])
    log_size = Count(constraints=[default(0)])
    log_told = BigIntegerField(null=True)
    log_digest = TextField(null=True)
    began_at = DoubleField(null=True)
    events = Count(constraints=[default(0)])

    class Meta:
        primary_key = CompositeKey("job", "number")
        without_rowid = True
        constraints = (
            Check("(outcome IS NULL) = (lease_clock IS NOT NULL)"),
            Check("(outcome IS NULL) = (finished_at IS NULL)"),
        )


_LIVE = Attempt.outcome.is_null()
Attempt.add_index(Attempt.job, where=_LIVE, unique=True, name="attempt_live")
Attempt.add_index(Attempt.worker, Attempt.job, where=_LIVE, name="attempt_held")
Attempt.add_index(Attempt.lease_clock, where=_LIVE, name="attempt_lease")
Attempt.add_index(Attempt.claim, name="attempt_claim")
Attempt.add_index(
    Attempt.finished_at,
    where=Attempt.outcome.is_null(False) & (Attempt.log_size > 0) & Attempt.log_digest.is_null(),
    name="attempt_unsealed",
)
Attempt.add_index(Attempt.log_digest, where=Attempt.log_digest.is_null(False), name="attempt_log")

_OF_ATTEMPT = SQL("FOREIGN KEY (job_id, number) REFERENCES attempt (job_id, number)")


class LogChunk(Table):
    """Bytes of a log, from byte `first` on."""

    job = BigIntegerField(column_name="job_id")
    number = BigIntegerField()
    first = Count()
    data = BlobField()

    class Meta:
        primary_key = CompositeKey("job", "number", "first")
        constraints = (_OF_ATTEMPT,)


class Blob(Table):
    digest = TextField(primary_key=True)
    size = Count()
    touched_at = DoubleField()


Blob.add_index(Blob.touched_at, name="blob_touched")


class Artifact(Table):
    job = BigIntegerField(column_name="job_id")
    number = BigIntegerField()
    path = TextField()
    digest = TextField()
    size = Count()

    class Meta:
        primary_key = CompositeKey("job", "number", "path")
        without_rowid = True
        constraints = (_OF_ATTEMPT,)


Artifact.add_index(Artifact.digest, name="artifact_blob")


class Event(Table):
    """The history: append-only. `job` of a run's own events is the run's number times 2^20."""

    seq = BigAutoField()
    time = DoubleField()
    type = TextField()
    job = BigIntegerField(null=True, column_name="job_id")
    attempt = BigIntegerField(null=True)
    worker = TextField(null=True)
    actor = TextField()
    old_state = TextField(null=True)
    new_state = TextField(null=True)
    data = TextField(null=True)


Event.add_index(Event.job, Event.seq, where=Event.job.is_null(False), name="event_job")
Event.add_index(Event.worker, Event.seq, where=Event.worker.is_null(False), name="event_worker")


class Writer(Table):
    """One row for each process that writes to PostgreSQL, with the number of its last commit. SQLite needs none."""

    id = TextField(primary_key=True)
    commits = BigIntegerField()


#: In the order in which they can be made and filled: those that others refer to come first.
TABLES: tuple[Any, ...] = (
    LeaseClock, Token, Submitter, Run, RunLabel, Submission, JobClass, Spec, SpecFile, Step, Worker, Session, Claim,
    Job, Attempt, LogChunk, Blob, Artifact, Event, Writer,
)  # fmt: skip
