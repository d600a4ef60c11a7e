"""The messages of the HTTP contract, version 1. One definition decodes, validates and encodes, and provides the schema.

Messages may gain fields; a field never changes its meaning. Invalid values in a request are refused. Unknown fields are
refused in requests that a person writes. In a worker's requests they are ignored, so that a newer worker can talk to an
older coordinator.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from deborgen_shared.jobfile import limits
from deborgen_shared.program_events import EVENTS_PER_REQUEST
from deborgen_shared.states import CancelEffect, LeaseAnswer, ResultAnswer, StoreKind

#: The end of a pattern. `$` alone would also match before a final line break.
END = r"$(?!\n)"
#: The patterns of names: run, attempt number, job, upload, worker, blob.
RUN = r"[1-9][0-9]{0,11}"
NUMBER = r"[1-9][0-9]{0,8}"
JOB = rf"{RUN}\.{NUMBER}"
UPLOAD = r"[0-9a-f]{32}"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
SHA256 = r"[0-9a-f]{64}"

Name = Annotated[str, Meta(pattern=f"^{NAME}{END}", max_length=63)]
#: An id that a worker chooses: of its session, or of a claim.
OpaqueId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,128}" + END, max_length=128)]
Sha256 = Annotated[str, Meta(pattern=f"^{SHA256}{END}", min_length=64, max_length=64)]
AttemptId = Annotated[str, Meta(pattern=f"^{JOB}/{NUMBER}{END}", max_length=32)]
Text = Annotated[str, Meta(max_length=2000)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
LabelKey = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}" + END, max_length=63)]
LabelValue = Annotated[str, Meta(max_length=200)] | bool | int | float
Labels = Annotated[dict[LabelKey, LabelValue], Meta(max_length=128)]
Size = Annotated[int, Meta(ge=0, le=2**60)]
Load = Annotated[float, Meta(ge=0, le=1_000_000)]
Celsius = Annotated[float, Meta(ge=-273.15, le=10_000)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Request(Struct, omit_defaults=True, kw_only=True):
    """A body that a worker sends."""


class PersonRequest(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A body that a person writes. A misspelt field is refused, not ignored."""


class AnswerBody(Struct, kw_only=True):
    """A body that the coordinator sends."""


T = TypeVar("T")


class Page(AnswerBody, Generic[T]):
    """A part of a list. `next` is the cursor of the next part, or null at the end."""

    items: list[T]
    next: str | None


# Workers: requests


class Resources(Request):
    cpus: Annotated[float, Meta(ge=0, le=65536)] = 0
    memory: Size = 0
    gpus: Annotated[int, Meta(ge=0, le=1024)] = 0
    disk: Size = 0


class GpuMetrics(Request):
    """Measurements of one GPU. `busy` is the share of recent time in which it was working, from 0 to 1."""

    name: Annotated[str, Meta(max_length=200)] = ""
    memory_free: Size | None = None
    busy: Share | None = None


#: One message carries the metrics of at most this many GPUs.
MOST_GPUS = 64


class Metrics(Request):
    """Measurements of the machine. Values that it cannot measure are left out.

    `load` is the average number of runnable processes over the last minute, `memory_free` the bytes available to
    programs, `disk_free` the bytes that the worker can still write, `temperature` in degrees Celsius.
    """

    load: Load | None = None
    memory_free: Size | None = None
    disk_free: Size | None = None
    temperature: Celsius | None = None
    gpus: Annotated[list[GpuMetrics], Meta(max_length=MOST_GPUS)] = field(default_factory=list)


#: A worker names at most this many images.
MOST_IMAGES = 1000


class Register(Request):
    session: OpaqueId
    version: Annotated[str, Meta(max_length=64)] = ""
    hostname: Annotated[str, Meta(max_length=255)] = ""
    labels: Labels = field(default_factory=dict)
    capacity: Resources = field(default_factory=Resources)
    holding: Annotated[list[AttemptId], Meta(max_length=4096)] = field(default_factory=list)
    gone: Annotated[list[AttemptId], Meta(max_length=4096)] = field(default_factory=list)
    """Attempts that this worker may have started but no longer has: its machine went down, or they left no trace."""
    metrics: Metrics | None = None
    images: Annotated[list[Sha256], Meta(max_length=MOST_IMAGES)] = field(default_factory=list)
    """The images of the pool that are on this machine."""


class NextClaim(Request):
    """A claim that is sent together with a finish. It never waits at the coordinator."""

    request_id: OpaqueId
    free: Resources
    max: Annotated[int, Meta(ge=1, le=256)] = 1
    ahead: bool = False
    """Each job alone must fit into `free`, not all of them together: they are short and may run one after another."""


class Claim(NextClaim, kw_only=True):
    session: OpaqueId
    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 0


#: The standing of an attempt whose program the owner has stopped.
FROZEN: Literal["frozen"] = "frozen"
#: The standing of an attempt whose program is stopped for a moment while its checkpoint is copied.
SAVING: Literal["saving"] = "saving"


class Held(Request):
    """An attempt that the worker holds, and how far it has got."""

    attempt: AttemptId
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Text = ""
    began_seconds_ago: Seconds | None = None
    """How long ago the program began; left out until it has begun."""
    stopped_seconds: Seconds = 0
    """How much of that time it was stopped, in total. This part does not count against the time limit."""
    standing: Literal["running", "slowed", "frozen", "saving"] = "running"


#: Times outside these years may not exist in every time zone and in every database.
LEAST_YEAR, MOST_YEAR = 1970, 9998


class Heartbeat(Request):
    session: OpaqueId
    holding: Annotated[list[Held], Meta(max_length=4096)] = field(default_factory=list)
    state: Literal["open", "limited", "yielding", "paused", "closed", "asleep", "draining"] = "open"
    reason: Text = ""
    until: Annotated[datetime, Meta(tz=True)] | None = None
    """When this state ends, if the worker knows it. For display only."""
    free: Resources | None = None
    """The resources available to another job now."""
    metrics: Metrics | None = None
    """If left out, the previous metrics stay."""
    images: Annotated[list[Sha256], Meta(max_length=MOST_IMAGES)] | None = None
    """As in `Register`. If left out, they have not changed."""

    def __post_init__(self) -> None:
        if self.until is not None and not LEAST_YEAR <= self.until.year <= MOST_YEAR:
            raise ValueError(f"`until` is not between the years {LEAST_YEAR} and {MOST_YEAR}")


class Artifact(Request):
    """A path in an attempt's output, and the blob that holds it."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    sha256: Sha256
    size: Size


class LogTail(Request):
    """The last bytes of a log, sent with the result to save a short job one request. `data` is base64."""

    offset: Count
    data: bytes


Scalar = str | int | float | bool | None
ImageName = Annotated[str, Meta(pattern=r"^[a-z0-9][A-Za-z0-9._/-]{0,290}:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}" + END)]
"""The name and the tag of an image."""


class Built(Request):
    """An image that a job has built. `digest` is its id: the digest of its configuration, the same on every machine.

    `archive` is the blob that holds it, which is also the only artifact of the result. `url` is its address in the
    pool's registry, with the registry's own digest. One of the two is given.
    """

    name: ImageName
    digest: Sha256
    size: Size
    archive: Sha256 | None = None
    url: Annotated[str, Meta(max_length=700, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*" + END)] | None = None
    commit: Annotated[str, Meta(max_length=64, pattern=r"^[0-9a-f]*" + END)] = ""
    seconds: Seconds = 0


class Result(Request):
    attempt: AttemptId
    outcome: Literal["succeeded", "failed", "timeout", "out_of_memory", "stalled", "canceled", "error", "released"]
    exit_code: Annotated[int, Meta(ge=-1024, le=2**32)] | None = None
    reason: Text = ""
    seconds: Seconds = 0
    cpu_seconds: Seconds | None = None
    peak_memory: Size | None = None
    artifacts: Annotated[list[Artifact], Meta(max_length=10_000)] = field(default_factory=list)
    result: dict[str, Scalar] | None = None
    log_size: Count = 0
    log: LogTail | None = None
    image: Annotated[str, Meta(max_length=500)] = ""
    cause: Annotated[str, Meta(max_length=63)] = ""
    """For an error: a word of `Cause`, or empty. A word that the coordinator does not know counts as empty."""
    warnings: Annotated[list[Text], Meta(max_length=20)] = field(default_factory=list)
    began_seconds_ago: Seconds | None = None
    """As in `Held`, at the moment when this result was sent."""
    stopped_seconds: Seconds = 0
    built: Built | None = None


class Finish(Request):
    """Results, optionally together with the next claim. A finish that gives jobs back carries no claim."""

    session: OpaqueId
    results: Annotated[list[Result], Meta(max_length=256)]
    claim: NextClaim | None = None


class ProgramEvent(Request):
    """One event that a program wrote."""

    type: Annotated[str, Meta(min_length=1, max_length=200)]
    payload: dict[str, Any] = field(default_factory=dict)


class ProgramEvents(Request):
    """Events that a program wrote, in order. `first` is the number of the first one within its attempt, counted from 0.

    `null` stands for a line that is not a valid event: the line has a number like any other, but is not recorded.
    """

    session: OpaqueId
    events: Annotated[list[ProgramEvent | None], Meta(max_length=EVENTS_PER_REQUEST)]
    first: Count | None = None


class CommitToPin(Request):
    """The commit that a worker found for a ref of a repository."""

    session: OpaqueId
    repo: Annotated[str, Meta(min_length=1, max_length=limits.URL)]
    ref: Annotated[str, Meta(min_length=1, max_length=limits.REF)]
    commit: Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})" + END, max_length=64)]


class SavedFile(Request):
    """A file of a checkpoint: its path in the workspace, and the blob that holds it."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    sha256: Sha256
    size: Size
    mode: Annotated[int, Meta(ge=0, le=0o777)] = 0o644


#: A checkpoint has at most this many files.
CHECKPOINT_FILES = 10_000


class SaveCheckpoint(Request):
    """All files of a checkpoint. `number` counts the checkpoints of the attempt, from 1."""

    session: OpaqueId
    number: Annotated[int, Meta(ge=1, le=2**53)]
    files: Annotated[list[SavedFile], Meta(max_length=CHECKPOINT_FILES)]


# Workers: answers


class PinnedCommit(AnswerBody):
    """The commit that all jobs of the run check out."""

    commit: str


class Registered(AnswerBody):
    """`lost` names the attempts that this registration ended, because the worker no longer holds them."""

    lease_seconds: float
    heartbeat_seconds: float
    lost: list[str]


class Input(AnswerBody):
    """An artifact of a needed step, and where the workspace has it: at `inputs/STEP/PATH` or, if the step has a sweep,
    at `inputs/STEP/INDEX/PATH`, with the index of the job that made it, or of the first job of its loop.

    In a loop, also an artifact of the last round, at `inputs/previous/PATH`, and for a check an artifact of the work
    that it checks, at its own path.
    """

    step: str
    job: str
    path: str
    target: str
    sha256: str
    size: int


#: The name of the user name and password for the pool's registry (`USER:PASSWORD`) among the secrets of an assignment.
#: No secret of a person can have this name, and it never enters a program's environment.
REGISTRY_CREDENTIALS = "registry:"


class PoolImage(AnswerBody):
    """An image that the pool has built, and where a worker gets it: from a blob, or from the pool's registry.

    `digest` is its id. `url` names the registry's own digest; `plain` says that the registry speaks plain HTTP.
    """

    digest: str
    size: int
    archive: str | None = None
    url: str | None = None
    plain: bool = False


class PushTarget(AnswerBody):
    """Where the image that a job builds is pushed: `place` is the registry with a path, such as `HOST:PORT/PATH`."""

    place: str
    plain: bool = False


class Checkpoint(AnswerBody):
    """What an earlier attempt of the job had saved last. The workspace has these files when the program starts."""

    attempt: str
    number: int
    files: list[SavedFile]


class Assignment(AnswerBody):
    """One attempt to run. The templates in `spec` are filled in already, except for `git.*`.

    `commit` is what the job's repository is checked out at; if it is empty, the worker resolves the ref and pins it.
    """

    attempt: str
    job: str
    number: int
    spec: Any
    params: dict[str, Any]
    inputs: list[Input]
    secrets: dict[str, str]
    timeout_seconds: float
    lease_seconds: float
    name: str = ""
    submitter: str = ""
    lease_expires_at: datetime | None = None
    """On the coordinator's wall clock, for display only. A worker uses `waited_seconds` and its own clock."""
    traceparent: str | UnsetType = UNSET
    """The trace that the run belongs to, for the environment of the program; left out if there is none."""
    phase: str | None = None
    """In a loop: `work` or `verify`, and the number of the round."""
    round: int | None = None
    commit: str = ""
    pool_image: PoolImage | None = None
    """The image that the job runs in, if the pool has built it."""
    push: PushTarget | None = None
    checkpoint: Checkpoint | None = None


class Claimed(AnswerBody):
    """`waited_seconds` is how long this request waited at the coordinator before the leases began.

    So each lease is valid at least until the time when the request was sent, plus `waited_seconds` and `lease_seconds`.
    """

    assignments: list[Assignment]
    waited_seconds: float = 0.0


class Orders(AnswerBody):
    pause: bool = False
    drain: bool = False


class HeartbeatAnswer(AnswerBody):
    attempts: dict[str, LeaseAnswer]
    orders: Orders
    wanted: list[str] | UnsetType = UNSET
    """The frozen attempts whose jobs another machine has room for now; left out if no attempt is frozen."""


class Finished(AnswerBody):
    results: dict[str, ResultAnswer]
    missing: dict[str, list[str]] = field(default_factory=dict)
    assignments: list[Assignment] | UnsetType = UNSET
    """The answer to the claim in the finish; left out if there was no claim."""
    waited_seconds: float | UnsetType = UNSET


class LogSize(AnswerBody):
    size: int


class EventCount(AnswerBody):
    """How many events of its program an attempt has sent, and how many of those exceeded the limit and were dropped."""

    count: int
    dropped: int = 0


class CheckpointSaved(AnswerBody):
    """The number of the attempt's newest checkpoint. If blobs are `missing`, this one was not accepted."""

    number: int
    missing: list[str] = field(default_factory=list)


# People: requests


class Cancel(PersonRequest):
    reason: Text = ""


#: Which jobs of a run to run again.
Retried = Literal["failed", "canceled", "all"]


#: Where a loop begins again: with its first round, or after the newest round whose work succeeded.
FIRST_ROUND: Literal["first"] = "first"
Rounds = Literal["first", "last"]


class Retry(PersonRequest):
    only: Retried = "failed"
    rounds: Rounds = FIRST_ROUND


class BlobDigests(PersonRequest):
    """`sizes` has the size of each digest, in the same order. It asks for addresses of the object store."""

    digests: Annotated[list[Sha256], Meta(max_length=10_000)]
    sizes: Annotated[list[Size], Meta(max_length=10_000)] = []


class UploadedPart(PersonRequest):
    """A part that was put into the object store, with the ETag that the store answered."""

    number: Annotated[int, Meta(ge=1, le=10_000)]
    etag: Annotated[str, Meta(max_length=200)]


class CompleteUpload(PersonRequest):
    """`parts` may be left out: the coordinator asks the object store for them."""

    upload: Annotated[str, Meta(pattern=rf"^{UPLOAD}{END}")]
    parts: Annotated[list[UploadedPart], Meta(max_length=10_000)] = []


#: The longest text of a message's property in AMQP, in bytes.
LONGEST_PROPERTY = 255


class Origin(PersonRequest):
    """Where a run came from, if a bridge submitted it: the bridge's name, and two properties of the message that it
    took. They are kept with the run, so that they can be sent back with everything that is said about it."""

    bridge: Name
    correlation_id: Annotated[str, Meta(max_length=LONGEST_PROPERTY)] | None = None
    reply_to: Annotated[str, Meta(max_length=LONGEST_PROPERTY)] | None = None


class NewCursor(PersonRequest):
    """A place in the history: the number of the last event that was dealt with.

    With `was`, the cursor moves only if it is at that place now, or does not exist yet if `was` is null.
    """

    seq: Annotated[int, Meta(ge=0, lt=2**53)]
    was: Annotated[int, Meta(ge=0, lt=2**53)] | UnsetType | None = UNSET


class SteerWorker(PersonRequest):
    paused: bool | UnsetType = UNSET
    drain: bool | UnsetType = UNSET


class NewToken(PersonRequest):
    role: Literal["admin", "submitter", "viewer", "worker"]
    name: Name
    expires_in_seconds: Annotated[float, Meta(gt=0, le=10 * 366 * 86400)] | None = None


#: A shorter value could not be masked in logs: it would be found everywhere.
SHORTEST_SECRET, LONGEST_SECRET = 6, 32 * 1024


class NewSecret(PersonRequest):
    """The value of a secret, as text without NUL. With `shared`, which only an admin may set, every submitter may use
    it."""

    value: Annotated[str, Meta(min_length=SHORTEST_SECRET, max_length=LONGEST_SECRET, pattern=r"^[^\x00]*" + END)]
    shared: bool = False


# People: answers


class Health(AnswerBody):
    """`artifact_store_trouble` says why the last call to the object store failed; it is empty if it did not."""

    status: str
    version: str
    artifact_store: StoreKind = StoreKind.LOCAL
    artifact_store_trouble: str = ""


class JobCounts(AnswerBody):
    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0


class Run(AnswerBody):
    id: int
    name: str
    submitter: str
    labels: dict[str, Any]
    state: str
    jobs: JobCounts
    created_at: datetime
    finished_at: datetime | None
    retry_of: int | None
    warnings: list[str]
    artifact_store: str = StoreKind.LOCAL.value
    origin: Origin | UnsetType = UNSET
    """Left out unless a bridge submitted the run."""
    traceparent: str | UnsetType = UNSET
    """Left out unless it was given when the run was submitted."""
    workspace_source: Literal["files", "git", "shared"] = "files"
    repo_url: str | None = None
    repo_ref: str | None = None
    commit: str | None = None
    """The commit that `repo_ref` stands for in this run; null until one is pinned."""


class CursorView(AnswerBody):
    """A person's place in the history: the number of the last event that was dealt with."""

    name: str
    seq: int
    moved_at: datetime


class SecretView(AnswerBody):
    """A secret without its value. `owner` is None if it is shared with the pool. A secret that is not `readable` was
    encrypted with a key that is gone."""

    name: str
    owner: str | None
    set_at: datetime
    last_used_at: datetime | None
    readable: bool


class Secrets(Page[SecretView]): ...


#: The label of a machine with the name of the person to whom it belongs.
OWNER_LABEL = "owner"


class LedgerHours(AnswerBody):
    """Hours of attempts, and hours of the processors, GPUs and GiB of memory that they asked for. `attempts` leaves out
    those that were given back."""

    attempts: int = 0
    hours: float = 0.0
    core_hours: float = 0.0
    gpu_hours: float = 0.0
    memory_gib_hours: float = 0.0


class LedgerRow(AnswerBody):
    """A line of the ledger: of a person, of a machine, or of a person on a machine.

    `used` is what the person's jobs used of other people's machines, `given` what a machine, or the machines of a
    person, gave to other people's jobs, and `own` the jobs of its owner on it, which cost nothing.
    """

    person: str | None
    machine: str | None
    given: LedgerHours = field(default_factory=LedgerHours)
    used: LedgerHours = field(default_factory=LedgerHours)
    own: LedgerHours = field(default_factory=LedgerHours)


class PoolLedger(AnswerBody):
    """`since` is the day, in UTC, with which the ledger begins."""

    since: date
    items: list[LedgerRow]


class Checked(AnswerBody):
    """A job file that would be accepted: its number of jobs, and the warnings it would get."""

    jobs: int
    warnings: list[str]


class Job(AnswerBody):
    id: str
    run: int
    index: int
    step: str | None
    name: str
    submitter: str
    state: str
    reason: str
    params: dict[str, Any]
    priority: int
    attempts: int
    max_attempts: int
    worker: str | None
    exit_code: int | None
    result: dict[str, Any] | None
    progress: float | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    message: str = ""
    warnings: list[str] = field(default_factory=list)
    began_at: datetime | None = None
    """While it is running: when its program began, or null if a worker only holds it so far."""
    phase: str | None = None
    """In a loop: `work` or `verify`, and the number of the round."""
    round: int | None = None
    verified: bool | None = None
    """The answer of a check, once it has given one."""


class ArtifactView(AnswerBody):
    """`uri` is where the bytes are: in the object store, or at this path of the coordinator."""

    path: str
    sha256: str
    size: int
    uri: str = ""


class CheckpointName(AnswerBody):
    """A checkpoint: the attempt that saved it, and its number there."""

    attempt: str
    number: int


class CheckpointView(CheckpointName, kw_only=True):
    saved_at: datetime
    files: int
    size: int


class Attempt(AnswerBody):
    """One attempt in a job's history. `outcome` is null while it runs.

    `claimed_at` is when a worker took it; `started_at` is when its program began, or null until that is known.
    `lease_expires_at` is set while the attempt runs, on the coordinator's wall clock.
    """

    number: int
    worker: str
    outcome: str | None
    reason: str
    exit_code: int | None
    claimed_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    seconds: float | None
    log_size: int
    lease_expires_at: datetime | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    image: str = ""
    went_on_from: CheckpointName | None = None
    """The checkpoint that was in its workspace when it started."""


class JobDetail(Job, kw_only=True):
    """`checkpoint` is what the job has saved last; null if there is none, or once it has succeeded."""

    spec: dict[str, Any]
    artifacts: list[ArtifactView]
    history: list[Attempt]
    checkpoint: CheckpointView | None = None


class JobGroup(AnswerBody):
    """Jobs of a run that share a reason or a warning: their number, and the first of them."""

    reason: str
    jobs: int
    first: str
    next_try_at: datetime | None = None
    """For jobs that wait before their next attempt: when the first of them is due."""


class RunOverview(AnswerBody):
    """The jobs of a run by the reason why they failed, by their warnings, and by the reason why the last attempt ended
    if they wait before the next one. `assigned` counts running jobs whose program is not known to have begun."""

    failed: list[JobGroup]
    warnings: list[JobGroup]
    waiting: list[JobGroup]
    assigned: int


class StepView(AnswerBody):
    """A step of a run. `id` is null for the only step of a file without `steps`. `waits` says that a step
    which it needs has not succeeded; `spec` is what its jobs have in common."""

    id: str | None
    needs: list[str]
    jobs: int
    unfinished: int
    waits: bool
    spec: dict[str, Any]


class ResultRow(AnswerBody):
    job: str
    step: str | None
    params: dict[str, Any]
    result: dict[str, Any] | None
    state: str
    seconds: float | None
    worker: str | None
    retry_of: str | None = None
    """Set if the row is of a later run, whose job is a successful retry of this one."""
    round: int | None = None
    """In a loop: the round that this job worked for, and whether the check of that round has verified it."""
    verified: bool | None = None


class RunSteps(Page[StepView]): ...


class Runs(Page[Run]): ...


class Jobs(Page[Job]): ...


class ResultRows(Page[ResultRow]): ...


class Artifacts(Page[ArtifactView]): ...


class RunArtifact(ArtifactView, kw_only=True):
    """An artifact and the job that made it."""

    job: str


class RunArtifacts(Page[RunArtifact]): ...


class CancelAnswer(AnswerBody):
    """What the cancellation did to each job. `jobs` names every job, even in a large run."""

    jobs: dict[str, CancelEffect]


class WhyWorker(AnswerBody):
    """Whether a worker can run the job now, and why not. It is `able` if it could once it has room."""

    worker: str
    fits: bool
    reason: str
    able: bool = False


class Why(AnswerBody):
    job: str
    state: str
    summary: str
    workers: list[WhyWorker]
    last_lines: list[str] = field(default_factory=list)
    """The end of the log, if the last attempt wrote nothing more and was `stalled`."""


class UploadPart(AnswerBody):
    """Bytes of a blob that are put at an address of their own."""

    number: int
    offset: int
    size: int
    url: str


class MissingBlob(AnswerBody, omit_defaults=True):
    """`direct` says that the pool has an object store: ask again with `sizes` for addresses there.

    An answer with an `upload` has such addresses. Put the whole blob at `url` with these `headers` or, if there are
    `parts`, each part at its own `url`; then ask again until no part is left, and complete the upload. `stored` is how
    many bytes the store already has in parts. No token is ever sent to these addresses.
    """

    sha256: str
    url: str
    direct: bool = False
    upload: str = ""
    headers: dict[str, str] = {}
    parts: list[UploadPart] = []
    stored: int = 0


class MissingBlobs(AnswerBody):
    missing: list[MissingBlob]


class BlobStored(AnswerBody):
    sha256: str
    size: int


class BlobChecked(AnswerBody):
    """Whether the store has the right bytes. If not, the blob no longer counts as stored."""

    sha256: str
    intact: bool


class Event(AnswerBody):
    seq: int
    time: datetime
    type: str
    run: int | None
    job: str | None
    attempt: str | None
    worker: str | None
    actor: str
    old_state: str | None
    new_state: str | None
    data: dict[str, Any]


class Events(Page[Event]): ...


class WorkerTrouble(AnswerBody):
    """An image that a worker could not get or, if `image` is empty, a workspace that it could not prepare."""

    image: str
    reason: str
    at: datetime


class Worker(AnswerBody):
    """A machine of the pool. `state` is open, paused, draining, resting, offline or left.

    `availability` is free or busy, or says why the worker takes no jobs or fewer: limited, yielding, paused, closed,
    asleep, draining or offline. `until` is when that ends, if the worker has said so. `running` names all attempts that
    the worker holds; `assigned` those of them whose programs are not known to have begun.
    """

    name: str
    state: str
    reason: str
    hostname: str
    version: str
    labels: dict[str, Any]
    capacity: Resources
    free: Resources
    running: list[str]
    last_seen_at: datetime | None
    paused: bool
    drain: bool
    availability: str = ""
    until: datetime | None = None
    metrics: Metrics | None = None
    assigned: list[str] = field(default_factory=list)
    troubles: list[WorkerTrouble] = field(default_factory=list)


class Workers(Page[Worker]): ...


class ImageView(AnswerBody):
    """An image that the pool has built. `name` is its name and tag; `pool/` in front of it makes it the image of a job.

    `digest` is its id, `image_url` its address in the pool's registry if it is there. `size` is in bytes. `job` built
    it, for the `submitter`, on the `worker`, from the `commit`. `on` names the machines that have it. `replaced` says
    that a newer image has the same name; it is kept with the results of the run that built it.
    """

    name: str
    digest: str
    image_url: str | None
    size: int
    commit: str | None
    repo_url: str | None
    job: str
    submitter: str
    worker: str
    seconds: float
    created_at: datetime
    on: list[str]
    replaced: bool = False


class Images(Page[ImageView]): ...


class TokenView(AnswerBody):
    id: str
    role: str
    name: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


class CreatedToken(TokenView, kw_only=True):
    token: str


class Tokens(Page[TokenView]): ...


class Me(AnswerBody):
    """The owner of the token that the request carried, and the image of jobs that do not name one."""

    name: str
    role: str
    default_image: str = ""


class SignInLink(AnswerBody):
    """A link that signs its reader in to the dashboard once. `path` comes after the coordinator's address."""

    path: str
    expires_at: datetime


class Error(AnswerBody):
    code: str
    message: str
    hint: str


class ErrorAnswer(AnswerBody):
    error: Error
