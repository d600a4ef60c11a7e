"""The states of a job and of a worker, what an attempt can end as, and what a job runs as."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a job stands. Nothing leaves a terminal state."""

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
    CANCELED = "canceled"
    ERROR = "error"
    LOST = "lost"
    RELEASED = "released"


#: The program's own doing: final, unless the job opted in to retries of it.
PROGRAM_FAILURES = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY})

#: The machinery's doing: may be tried again while attempts are left.
INFRASTRUCTURE_FAILURES = frozenset({Outcome.ERROR, Outcome.LOST})


class WorkerState(StrEnum):
    """How a worker stands. It says the first seven of itself; the coordinator concludes the other three."""

    OPEN = "open"
    #: It takes jobs, but offers less than usual.
    LIMITED = "limited"
    #: Its owner uses the machine at this moment.
    YIELDING = "yielding"
    #: Its owner or an admin has paused it.
    PAUSED = "paused"
    #: It cannot or may not take jobs now: outside its hours, too little disk, a runner that does not work.
    CLOSED = "closed"
    ASLEEP = "asleep"
    #: It finishes what it runs, and takes no more.
    DRAINING = "draining"
    #: Too many infrastructure failures in a row: it gets no jobs for a while.
    RESTING = "resting"
    #: It has not been heard of for longer than a lease.
    OFFLINE = "offline"
    #: It has said goodbye, or its token was revoked.
    LEFT = "left"


#: A worker takes jobs in these states, and in no other.
WORKING = frozenset({WorkerState.OPEN, WorkerState.LIMITED})


#: Release 0.1 does not know these words. Its nearest ones stand in for them: in what its clients are shown, and in what
#: its coordinator is told.
FIRST_WORDS = {
    WorkerState.LIMITED: WorkerState.OPEN,
    WorkerState.YIELDING: WorkerState.PAUSED,
    WorkerState.CLOSED: WorkerState.PAUSED,
    WorkerState.ASLEEP: WorkerState.PAUSED,
}


class Availability(StrEnum):
    """What people are told about a worker, in one word."""

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
    """What a job runs as, and so what a worker must offer. Which program makes containers is the worker's affair."""

    CONTAINER = "container"
    PROCESS = "process"

    @classmethod
    def _missing_(cls, value: object) -> RunAs | None:
        """A pool's database may hold the words of release 0.1."""
        return next((each for each in cls if FIRST_RUNNERS[each] == value), None)

    @property
    def label(self) -> str:
        """The label of a worker which says that it offers this."""
        return f"runner.{self}"

    @property
    def first_label(self) -> str:
        """The same in release 0.1, where it named the program that runs the job."""
        return f"runner.{FIRST_RUNNERS[self]}"

    def offered(self, labels: Mapping[str, object]) -> bool:
        """Whether a worker with these labels offers it. One of release 0.1 has the first label only."""
        return labels.get(self.label, labels.get(self.first_label, False)) not in (False, "false")


FIRST_RUNNERS = {RunAs.CONTAINER: "podman", RunAs.PROCESS: "subprocess"}


class Role(StrEnum):
    """What a token may do."""

    ADMIN = "admin"
    SUBMITTER = "submitter"
    VIEWER = "viewer"
    WORKER = "worker"


def run_state(queued: int, running: int, succeeded: int, failed: int, canceled: int) -> State:
    """The state of a run, derived from how many of its jobs are in each state."""
    if queued or running:
        return State.RUNNING if running or succeeded or failed or canceled else State.QUEUED
    if failed:
        return State.FAILED
    return State.CANCELED if canceled else State.SUCCEEDED
