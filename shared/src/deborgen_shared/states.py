"""The states of a job, and what an attempt can end as."""

from __future__ import annotations

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
