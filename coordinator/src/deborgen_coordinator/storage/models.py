"""Every table, described once: its columns, constraints, keys and indexes, for SQLite and for PostgreSQL.

A new database is created from these models (`schema.py`), queries are built on them, and backups iterate over them.
Every change here needs a step in migrations/; a test checks that both ways lead to the same schema.

A job's id is its run's number times 2^20 plus its index: the jobs of a run are adjacent, and the order of ids is the
order of submission. Columns `*_at` are wall clock seconds, for people; columns `*_clock` are on the lease clock.

The models have the same names as some wire messages (Job, Run, ...), and are used only inside storage. They are not
bound to a database: a connection executes the queries that it is given (`connection.rows(query)`).
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

from deborgen_shared.states import Outcome, Phase, Role, State, StoreKind, WorkerState

UNIQUE = SQL("UNIQUE")
#: The states that a worker's row can have. The coordinator derives `resting` and `offline`.
WORKER_STATES = [state for state in WorkerState if state not in (WorkerState.RESTING, WorkerState.OFFLINE)]


def default(value: float | str) -> SQL:
    """The default value of a column."""
    return SQL(f"DEFAULT '{value}'" if isinstance(value, str) else f"DEFAULT {value}")


class KeyField(BigIntegerField):
    """A primary key that is not generated. In SQLite it is the rowid, so it needs no extra index."""

    field_type = "KEY"


class CheckedField(BigIntegerField):
    """A number with a CHECK condition, in which `{}` stands for the column's name."""

    condition = "{} >= 0"

    def bind(self, model: Any, name: str, set_attribute: bool = True) -> None:
        super().bind(model, name, set_attribute)
        self.constraints = [*(self.constraints or ()), Check(self.condition.format(self.column_name))]


class CountField(CheckedField):
    """A number that is at least 0."""


class PositiveField(CheckedField):
    condition = "{} > 0"


class FlagField(CheckedField):
    condition = "{} IN (0, 1)"


class OneOfField(TextField):
    """One of a fixed set of words."""

    def __init__(self, words: Iterable[str], **options: Any) -> None:
        super().__init__(**options)
        self.words = ", ".join(f"'{word}'" for word in words)

    def bind(self, model: Any, name: str, set_attribute: bool = True) -> None:
        super().bind(model, name, set_attribute)
        self.constraints = [*(self.constraints or ()), Check(f"{self.column_name} IN ({self.words})")]


class ReferenceField(ForeignKeyField):
    """A foreign key without an implicit index: every index is declared explicitly."""

    field_type = "BIGINT"

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model, index=False, backref="+", **options)


class TableModel(Model):
    class Meta:
        database = None
        legacy_table_names = False


class LeaseClock(TableModel):
    """One row: the lease clock's value, the process that moves it, and how often it was moved."""

    id = IntegerField(primary_key=True, constraints=[Check("id = 1")])
    value = DoubleField()
    mover = TextField(constraints=[default("")], column_name="sweeper")
    moves = BigIntegerField(constraints=[default(0)], column_name="turns")


class Token(TableModel):
    id = TextField(primary_key=True)
    role = OneOfField(sorted(Role))
    name = TextField()
    digest = TextField()
    created_at = DoubleField()
    expires_at = DoubleField(null=True)
    last_used_at = DoubleField(null=True)
    revoked_at = DoubleField(null=True)


class SignIn(TableModel):
    """A link that signs a person in to the dashboard once or, without `is_link`, the session of a browser.

    Only the SHA-256 of its secret is stored."""

    digest = TextField(primary_key=True)
    token_id = TextField()
    is_link = FlagField()
    #: The address in the browser: a session is worth nothing at another one.
    host = TextField()
    expires_at = DoubleField()


class Submitter(TableModel):
    """A person who submits, and the usage of their ended attempts in seconds times cpus."""

    id = BigAutoField()
    name = TextField(constraints=[UNIQUE])
    used = DoubleField(constraints=[default(0)])


class Secret(TableModel):
    """A value that jobs get in their environment, encrypted. Without an owner, it is shared with the pool."""

    id = BigAutoField()
    owner = ReferenceField(Submitter, null=True)
    name = TextField()
    value = BlobField()
    set_at = DoubleField()
    last_used_at = DoubleField(null=True)


Secret.add_index(Secret.owner, Secret.name, unique=True, where=Secret.owner.is_null(False), name="secret_own")
Secret.add_index(Secret.name, unique=True, where=Secret.owner.is_null(), name="secret_shared")


class Run(TableModel):
    """A submission, with the number of its jobs in each state."""

    id = BigAutoField()
    name = TextField()
    submitter = ReferenceField(Submitter)
    labels = TextField()
    warnings = TextField()
    retry_of = ReferenceField("self", null=True, column_name="retry_of")
    jobs = PositiveField()
    steps = PositiveField()
    queued = CountField()
    running = CountField(constraints=[default(0)])
    succeeded = CountField(constraints=[default(0)])
    failed = CountField(constraints=[default(0)])
    canceled = CountField(constraints=[default(0)])
    created_at = DoubleField()
    finished_at = DoubleField(null=True)
    pruned_at = DoubleField(null=True)
    #: Whether a person canceled the whole run, and not only some of its jobs.
    whole_canceled = FlagField(constraints=[default(0)])
    #: Where the run came from, as JSON, if a bridge submitted it.
    origin = TextField(null=True)
    #: The index of the next job that a loop adds; 0 if the run has no loop.
    next_index = CountField(constraints=[default(0)])
    artifact_store = OneOfField(StoreKind, constraints=[default(StoreKind.LOCAL)])
    #: The repository or the shared folder of its first step that has one, as JSON.
    workspace = TextField(null=True)
    #: The trace that the run belongs to, if its submitter named one.
    traceparent = TextField(null=True)

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


# In a table without rowid, the key's columns come first and in order: the quick_check of SQLite 3.40 expects that.
class RunLabel(TableModel):
    name = TextField()
    value = TextField()
    run = ReferenceField(Run)

    class Meta:
        primary_key = CompositeKey("name", "value", "run")
        without_rowid = True


class Submission(TableModel):
    """The run that was submitted under an idempotency key, and the digest of the request."""

    submitter = ReferenceField(Submitter)
    key = TextField()
    digest = TextField()
    run = ReferenceField(Run)

    class Meta:
        primary_key = CompositeKey("submitter", "key")
        without_rowid = True


class JobClass(TableModel):
    """The needs that the jobs of a class share. They may be long, so their digest is the unique key."""

    id = BigAutoField()
    digest = TextField(constraints=[UNIQUE])
    needs = TextField(constraints=[default("")])

    class Meta:
        table_name = "class"


class Spec(TableModel):
    id = BigAutoField()
    digest = TextField(constraints=[UNIQUE])
    body = TextField()
    job_class = ReferenceField(JobClass, column_name="class_id")


class SpecFile(TableModel):
    digest = TextField()
    spec = ReferenceField(Spec)

    class Meta:
        primary_key = CompositeKey("digest", "spec")
        without_rowid = True


class Step(TableModel):
    """`blockers` counts the needed steps that have not succeeded; `unfinished` counts this step's unfinished jobs."""

    run = ReferenceField(Run)
    number = BigIntegerField()
    name = TextField(null=True)
    needs = TextField()
    spec = ReferenceField(Spec)
    first_index = BigIntegerField()
    last_index = BigIntegerField(constraints=[Check("last_index >= first_index")])
    jobs = PositiveField()
    unfinished = CountField()
    blockers = CountField()

    class Meta:
        primary_key = CompositeKey("run", "number")
        without_rowid = True


class Worker(TableModel):
    """`failures` counts the infrastructure failures in a row, and `failed` describes the last of them as JSON. Until
    `rest_clock` the worker gets no jobs; `rests` counts how often it has rested in a row."""

    id = BigAutoField()
    name = TextField(constraints=[UNIQUE])
    session = TextField()
    hostname = TextField()
    version = TextField()
    labels = TextField()
    capacity = TextField()
    free = TextField()
    reason = TextField()
    paused = FlagField(constraints=[default(0)])
    drain = FlagField(constraints=[default(0)])
    online = FlagField()
    failures = BigIntegerField(constraints=[default(0)])
    rests = BigIntegerField(constraints=[default(0)])
    rest_clock = DoubleField(constraints=[default(0)])
    seen_clock = DoubleField()
    seen_at = DoubleField()
    state = OneOfField(WORKER_STATES, constraints=[default(WorkerState.OPEN.value)])
    until_at = DoubleField(null=True)
    metrics = TextField(null=True)
    failed = TextField(constraints=[default("[]")])


class Experience(TableModel):
    """Whether an image or a workspace works on a worker. If not, `failures` is how many times in a row it has failed
    there, and other workers come first until `avoid_clock`."""

    subject = TextField()
    worker = ReferenceField(Worker)
    failures = CountField()
    avoid_clock = DoubleField()
    reason = TextField()
    at = DoubleField()

    class Meta:
        primary_key = CompositeKey("subject", "worker")
        without_rowid = True


Experience.add_index(Experience.worker, where=(Experience.failures > 0), name="experience_trouble")
Experience.add_index(Experience.at, name="experience_age")


class Session(TableModel):
    """One life of a worker process, and the attempts that its registration reported as lost."""

    worker = ReferenceField(Worker)
    id = TextField()
    started_at = DoubleField()
    lost = TextField()

    class Meta:
        primary_key = CompositeKey("worker", "id")
        without_rowid = True


class Claim(TableModel):
    id = BigAutoField()
    worker = ReferenceField(Worker)
    request_id = TextField()
    created_at = DoubleField()

    class Meta:
        constraints = (SQL("UNIQUE (worker_id, request_id)"),)


class Job(TableModel):
    """`rank` is the priority with the opposite sign. A `ready` job can be claimed: it is queued, the steps that it
    needs have succeeded, and it does not wait for `wait_clock` before its next attempt. Until `avoid_clock`, the worker
    `avoid` gets it only if no other worker could. `attempts` leaves out released attempts; `last_attempt` is the number
    of the newest attempt.

    The jobs of a loop have a `point`: the id of the first of them. Jobs of later rounds are made while the run goes on,
    so they have a `created_at` of their own. `verified` is the answer of a check."""

    id = KeyField(primary_key=True)
    step = BigIntegerField()
    spec = ReferenceField(Spec)
    job_class = ReferenceField(JobClass, column_name="class_id")
    submitter = ReferenceField(Submitter)
    rank = BigIntegerField()
    params = TextField()
    state = OneOfField(State)
    ready = FlagField()
    avoid = BigIntegerField(constraints=[default(0)])
    avoid_clock = DoubleField(null=True)
    wait_clock = DoubleField(null=True)
    attempts = CountField(constraints=[default(0)])
    last_attempt = BigIntegerField(constraints=[default(0), Check("last_attempt >= attempts")])
    cancel_requested = FlagField(constraints=[default(0)])
    reason = TextField(constraints=[default("")])
    worker = ReferenceField(Worker, null=True)
    exit_code = BigIntegerField(null=True)
    result = TextField(null=True)
    warnings = TextField(null=True)
    progress = DoubleField(null=True)
    message = TextField(null=True)
    started_at = DoubleField(null=True)
    finished_at = DoubleField(null=True)
    point = BigIntegerField(null=True)
    round = PositiveField(null=True)
    phase = OneOfField(Phase, null=True)
    verified = FlagField(null=True)
    created_at = DoubleField(null=True)

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
Job.add_index(Job.point, Job.round, Job.phase, unique=True, where=Job.point.is_null(False), name="job_round")


class Attempt(TableModel):
    """`outcome` is null while the attempt is live. Only live attempts have a lease, which ends at `lease_clock`.
    `named` says that a heartbeat or a result has named the attempt. `began_at` is the start of the program. The
    coordinator ends the attempt at `deadline_clock` if its worker has not. `announced_size` is the log's size according
    to the result. `events` counts the program's own events, including dropped ones. `from_attempt` and
    `from_checkpoint` name the checkpoint that was in its workspace when it started."""

    job = ReferenceField(Job)
    number = PositiveField()
    worker = ReferenceField(Worker)
    session = TextField()
    claim = ReferenceField(Claim)
    named = FlagField(constraints=[default(0)], column_name="confirmed")
    granted_clock = DoubleField()
    deadline_clock = DoubleField()
    lease_clock = DoubleField(null=True)
    claimed_at = DoubleField(column_name="started_at")
    finished_at = DoubleField(null=True)
    outcome = OneOfField(Outcome, null=True)
    reason = TextField(constraints=[default("")])
    exit_code = BigIntegerField(null=True)
    seconds = DoubleField(null=True)
    cpu_seconds = DoubleField(null=True)
    peak_memory = BigIntegerField(null=True)
    image = TextField(constraints=[default("")])
    digest = TextField(null=True)
    stale = FlagField(constraints=[default(0)])
    log_size = CountField(constraints=[default(0)])
    announced_size = BigIntegerField(null=True, column_name="log_told")
    log_digest = TextField(null=True)
    began_at = DoubleField(null=True)
    events = CountField(constraints=[default(0)])
    from_attempt = BigIntegerField(null=True)
    from_checkpoint = BigIntegerField(null=True)

    class Meta:
        primary_key = CompositeKey("job", "number")
        without_rowid = True
        constraints = (
            Check("(outcome IS NULL) = (lease_clock IS NOT NULL)"),
            Check("(outcome IS NULL) = (finished_at IS NULL)"),
        )


_LIVE = Attempt.outcome.is_null()
Attempt.add_index(Attempt.worker, Attempt.finished_at, where=Attempt.finished_at.is_null(False), name="attempt_ended")
Attempt.add_index(Attempt.job, where=_LIVE, unique=True, name="attempt_live")
Attempt.add_index(Attempt.worker, Attempt.job, where=_LIVE, name="attempt_held")
Attempt.add_index(
    Attempt.finished_at,
    where=Attempt.outcome.is_null(False) & (Attempt.log_size > 0) & Attempt.log_digest.is_null(),
    name="attempt_unsealed",
)
Attempt.add_index(Attempt.log_digest, where=Attempt.log_digest.is_null(False), name="attempt_log")

_OF_ATTEMPT = SQL("FOREIGN KEY (job_id, number) REFERENCES attempt (job_id, number)")


class LogChunk(TableModel):
    """Bytes of a log, starting at byte `first`."""

    job = BigIntegerField(column_name="job_id")
    number = BigIntegerField()
    first = CountField()
    data = BlobField()

    class Meta:
        primary_key = CompositeKey("job", "number", "first")
        constraints = (_OF_ATTEMPT,)


class Blob(TableModel):
    """The bytes are in the object store under the key `digest/upload`, or in the local folder if `upload` is empty."""

    digest = TextField(primary_key=True)
    size = CountField()
    touched_at = DoubleField()
    upload = TextField(constraints=[default("")])


Blob.add_index(Blob.touched_at, name="blob_touched")
Blob.add_index(Blob.digest, where=(Blob.upload != SQL("''")), name="blob_remote")


class Upload(TableModel):
    """An object of the object store that is not a blob: not yet, or not any more. It is removed a day after
    `created_at`. `multipart` is the store's own name of an upload in parts."""

    id = TextField(primary_key=True)
    digest = TextField()
    size = CountField()
    owner = TextField()
    multipart = TextField()
    created_at = DoubleField()


Upload.add_index(Upload.owner, Upload.digest, name="upload_owner")
Upload.add_index(Upload.created_at, name="upload_age")


class ArtifactStore(TableModel):
    """The object store that the coordinators of this database use now."""

    address = TextField(primary_key=True)


class Artifact(TableModel):
    job = BigIntegerField(column_name="job_id")
    number = BigIntegerField()
    path = TextField()
    digest = TextField()
    size = CountField()

    class Meta:
        primary_key = CompositeKey("job", "number", "path")
        without_rowid = True
        constraints = (_OF_ATTEMPT,)


Artifact.add_index(Artifact.digest, name="artifact_blob")


IMAGE_STANDINGS = ("current", "replaced", "removed")


class Image(TableModel):
    """An image that a job has built. `name` has its tag, `digest` is its id. It is in the blob `archive`, or at `url`
    in the pool's registry. A newer image has the name of a `replaced` one. A `removed` one goes when no unfinished job
    needs it."""

    id = BigAutoField()
    name = TextField()
    digest = TextField()
    archive = TextField(null=True)
    url = TextField(null=True)
    size = CountField()
    job = BigIntegerField(column_name="job_id")
    number = BigIntegerField()
    repo = TextField(null=True)
    commit = TextField(null=True, column_name="commit_id")
    seconds = DoubleField()
    created_at = DoubleField()
    standing = OneOfField(IMAGE_STANDINGS)

    class Meta:
        constraints = (_OF_ATTEMPT, Check("(archive IS NULL) != (url IS NULL)"))


Image.add_index(Image.name, where=(Image.standing == "current"), unique=True, name="image_current")
Image.add_index(Image.digest, name="image_digest")
Image.add_index(Image.job, name="image_job")
Image.add_index(Image.archive, where=Image.archive.is_null(False), name="image_archive")


class ImagePlace(TableModel):
    """A machine that has an image of the pool, by the image's id."""

    worker = ReferenceField(Worker)
    digest = TextField()

    class Meta:
        primary_key = CompositeKey("worker", "digest")
        without_rowid = True


class Checkpoint(TableModel):
    """What a job's attempts have saved last: at most one checkpoint per job."""

    job = KeyField(primary_key=True, column_name="job_id")
    attempt = PositiveField()
    number = PositiveField()
    saved_at = DoubleField()

    class Meta:
        constraints = (SQL("FOREIGN KEY (job_id, attempt) REFERENCES attempt (job_id, number)"),)


class CheckpointFile(TableModel):
    job = ReferenceField(Checkpoint)
    path = TextField()
    digest = TextField()
    size = CountField()
    mode = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("job", "path")
        without_rowid = True


CheckpointFile.add_index(CheckpointFile.digest, name="checkpoint_blob")


class Event(TableModel):
    """The append-only history. For an event of a whole run, `job` is the run's number times 2^20."""

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


class Pin(TableModel):
    """The commit that a ref of a repository stands for in a run."""

    run = ReferenceField(Run)
    repo = TextField()
    ref = TextField()
    commit = TextField(column_name="commit_name")

    class Meta:
        primary_key = CompositeKey("run", "repo", "ref")
        without_rowid = True


class HistoryCursor(TableModel):
    """A person's place in the history: the number of the last event that was dealt with."""

    submitter = ReferenceField(Submitter)
    name = TextField()
    seq = CountField()
    moved_at = DoubleField()

    class Meta:
        primary_key = CompositeKey("submitter", "name")
        table_name = "cursor"
        without_rowid = True


#: The few events of a machine itself, such as its pauses, among the many events of the attempts on it.
Event.add_index(Event.worker, Event.seq, where=Event.worker.is_null(False) & Event.job.is_null(), name="event_machine")


class Spent(TableModel):
    """What a person's ended attempts used of a machine in a stretch of time: seconds, and seconds times processors,
    GPUs and bytes of memory. `attempts` and `succeeded` count the attempts that ended in it. The stretches of the last
    day are short, and older ones are whole days (`length`)."""

    begin = BigIntegerField()
    length = PositiveField()
    worker = ReferenceField(Worker)
    submitter = ReferenceField(Submitter)
    attempts = BigIntegerField()
    succeeded = BigIntegerField()
    seconds = DoubleField()
    cores = DoubleField()
    gpus = DoubleField()
    memory = DoubleField()

    class Meta:
        table_name = "usage"
        primary_key = CompositeKey("begin", "length", "worker", "submitter")
        without_rowid = True


class QueueDepth(TableModel):
    """How many jobs were queued and running at one moment of the last day: a row per minute."""

    minute = KeyField(primary_key=True)
    queued = CountField()
    running = CountField()


class Writer(TableModel):
    """One row per process that writes to PostgreSQL, with the number of its last commit. Unused with SQLite."""

    id = TextField(primary_key=True)
    commits = BigIntegerField()


#: All tables, in an order in which they can be created and filled: a table comes before the tables that refer to it.
TABLES: tuple[Any, ...] = (
    LeaseClock, Token, SignIn, Submitter, Secret, Run, RunLabel, Submission, JobClass, Spec, SpecFile, Step, Worker,
    Experience, Session, Claim, Job, Attempt, LogChunk, Blob, Upload, ArtifactStore, Artifact, Image, ImagePlace,
    Checkpoint, CheckpointFile, Event, HistoryCursor, Pin, Spent, QueueDepth, Writer,
)  # fmt: skip
