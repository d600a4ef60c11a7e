"""The words on the wire: states, outcomes, roles, answers, and the ways in which a job can run."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """The state of a job. A job never leaves a terminal state."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED})


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    #: The program wrote nothing for as long as its watchdog waits.
    STALLED = "stalled"
    CANCELED = "canceled"
    ERROR = "error"
    LOST = "lost"
    RELEASED = "released"


#: The program itself failed. This is final, unless the job opted in to retries.
PROGRAM_FAILURES = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY, Outcome.STALLED})

#: The machine, the network or the image failed. The job is retried while it has attempts left.
INFRASTRUCTURE_FAILURES = frozenset({Outcome.ERROR, Outcome.LOST})


class Phase(StrEnum):
    """The two jobs of each round of a loop: the work, and the check that decides whether another round follows."""

    WORK = "work"
    VERIFY = "verify"


class Cause(StrEnum):
    """Why an attempt ended as an error, where its worker can tell."""

    IMAGE_UNKNOWN = "image_unknown"
    IMAGE_REFUSED = "image_refused"
    REGISTRY_UNREACHABLE = "registry_unreachable"
    #: The owner of the machine does not allow images from this registry.
    IMAGE_NOT_ALLOWED = "image_not_allowed"
    #: The image could not be obtained for another reason, such as a full disk.
    IMAGE = "image"
    WORKSPACE = "workspace"

    @property
    def about_image(self) -> bool:
        return self is not Cause.WORKSPACE


class LeaseAnswer(StrEnum):
    """What a heartbeat's answer says about an attempt."""

    CONTINUE = "continue"
    CANCEL = "cancel"
    #: The attempt no longer belongs to this worker.
    STOP = "stop"


class ResultAnswer(StrEnum):
    """What the answer to a finish says about a result."""

    ACCEPTED = "accepted"
    STALE = "stale"
    ALREADY_RECORDED = "already_recorded"
    MISSING_BLOBS = "missing_blobs"


class CancelEffect(StrEnum):
    """What a cancel has done to a job."""

    CANCELED = "canceled"
    CANCEL_REQUESTED = "cancel_requested"
    ALREADY_TERMINAL = "already_terminal"


class StoreKind(StrEnum):
    """Where a pool keeps the bytes of its blobs."""

    LOCAL = "local"
    S3 = "s3"


class WorkerState(StrEnum):
    """The state of a worker. The worker reports the first seven itself; the coordinator infers the other three."""

    OPEN = "open"
    #: It takes jobs, but offers fewer resources than usual.
    LIMITED = "limited"
    #: Its owner is using the machine right now.
    YIELDING = "yielding"
    #: Its owner or an admin has paused it.
    PAUSED = "paused"
    #: It cannot or may not take jobs now: it is outside its hours, its disk is nearly full, or a runner does not work.
    CLOSED = "closed"
    ASLEEP = "asleep"
    #: It finishes its running jobs and takes no new ones.
    DRAINING = "draining"
    #: Too many infrastructure failures in a row: it gets no jobs for a while.
    RESTING = "resting"
    #: It has not been heard from for longer than a lease.
    OFFLINE = "offline"
    #: It has left the pool, or its token was revoked.
    LEFT = "left"


#: A worker takes jobs in these states only.
WORKING = frozenset({WorkerState.OPEN, WorkerState.LIMITED})


#: Release 0.1 does not know these states. Its programs get the closest state that it does know.
OLD_STATES = {
    WorkerState.LIMITED: WorkerState.OPEN,
    WorkerState.YIELDING: WorkerState.PAUSED,
    WorkerState.CLOSED: WorkerState.PAUSED,
    WorkerState.ASLEEP: WorkerState.PAUSED,
}


class Availability(StrEnum):
    """Whether a worker can take jobs, in one word for people."""

    FREE = "free"
    BUSY = "busy"
    LIMITED = "limited"
    YIELDING = "yielding"
    PAUSED = "paused"
    CLOSED = "closed"
    ASLEEP = "asleep"
    DRAINING = "draining"
    OFFLINE = "offline"


class RunAs(StrEnum):
    """Whether a job runs in a container or as a plain process, or builds an image. The worker chooses the program that
    runs containers."""

    CONTAINER = "container"
    PROCESS = "process"
    BUILD = "build"

    @classmethod
    def _missing_(cls, value: object) -> RunAs | None:
        """Also accept the names that release 0.1 used: a pool's database may still contain them."""
        return next((each for each in cls if OLD_RUNNERS[each] == value), None)

    @property
    def label(self) -> str:
        """The label of a worker that can run such jobs."""
        return str(self) if self is RunAs.BUILD else f"runner.{self}"

    @property
    def old_label(self) -> str:
        """The label that release 0.1 uses instead. It names the program that runs the job."""
        return f"runner.{OLD_RUNNERS[self]}" if self is not RunAs.BUILD else self.label

    def offered(self, labels: Mapping[str, object]) -> bool:
        """Whether a worker with these labels can run such jobs. A worker of release 0.1 has only `old_label`."""
        return labels.get(self.label, labels.get(self.old_label, False)) not in (False, "false")


OLD_RUNNERS = {RunAs.CONTAINER: "podman", RunAs.PROCESS: "subprocess", RunAs.BUILD: "build"}


class Role(StrEnum):
    """What a token may do."""

    ADMIN = "admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"
    WORKER = "worker"


def run_state(queued: int, running: int, succeeded: int, failed: int, canceled: int, whole: bool = False) -> State:
    """The state of a run, derived from the number of its jobs in each state.

    `whole` says that a person canceled the whole run: then the run is canceled even if some of its jobs failed.
    """
    if queued or running:
        return State.RUNNING if running or succeeded or failed or canceled else State.QUEUED
    if failed and not (whole and canceled):
        return State.FAILED
    return State.CANCELED if canceled else State.SUCCEEDED
