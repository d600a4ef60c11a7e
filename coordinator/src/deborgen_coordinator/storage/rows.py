"""The values that storage returns: plain, frozen and typed. Their fields are the columns that a query selects."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar, get_type_hints

from msgspec import Struct

from deborgen_shared.states import Outcome, Phase, State, WorkerState

from ..loops import Place
from .database import Row

R = TypeVar("R")


def _word_of(words: type[StrEnum]) -> Callable[[Any], Any]:
    """The function that converts a stored word, or None; a look-up takes a tenth of the time of the enum's own call."""
    known: dict[str | None, StrEnum | None] = {None: None, **{word.value: word for word in words}}
    return known.__getitem__


#: Field types that the database stores as another type, and how to convert the stored value.
CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    bool: bool, State: _word_of(State), WorkerState: _word_of(WorkerState), Outcome | None: _word_of(Outcome),
    Phase | None: _word_of(Phase), bool | None: {None: None, 0: False, 1: True}.__getitem__, list[str]: json.loads,
}  # fmt: skip


def columns(kind: Any, model: Any, **renamed: Any) -> list[Any]:
    """The columns that a query selects to build a value: the model's columns of the same names, or the ones in
    `renamed`."""
    return [renamed.get(name) or getattr(model, name) for name in kind.__struct_fields__]


def builder(kind: type[R]) -> Callable[[Row], R]:
    """A function that builds a value from a row of its columns."""
    hints = enumerate(get_type_hints(kind).values())
    conversions = [(at, CONVERSIONS[hint]) for at, hint in hints if hint in CONVERSIONS]

    def build(row: Row) -> R:
        values = list(row)
        for at, convert in conversions:
            values[at] = convert(values[at])
        return kind(*values)

    return build


class JobRow(Struct, frozen=True):
    """A job as operations see it."""

    id: int
    step: int
    spec_id: int
    class_id: int
    submitter_id: int
    rank: int
    params: str
    state: State
    ready: bool
    avoid: int
    wait_clock: float | None
    attempts: int
    last_attempt: int
    cancel_requested: bool
    reason: str
    worker: str | None
    exit_code: int | None
    result: str | None
    warnings: str | None
    progress: float | None
    message: str | None
    started_at: float | None
    finished_at: float | None
    point: int | None
    round: int | None
    phase: Phase | None
    verified: bool | None
    created_at: float | None

    @property
    def place(self) -> Place | None:
        """Where the job stands in a loop, if it is in one."""
        if self.point is None or self.round is None or self.phase is None:
            return None
        return Place(self.point, self.round, self.phase)


class SecretRow(Struct, frozen=True):
    """A secret with its encrypted value. `owner` is a person's name, or None if the secret is shared with the pool."""

    id: int
    owner: str | None
    name: str
    value: bytes
    set_at: float
    last_used_at: float | None


class CursorRow(Struct, frozen=True):
    name: str
    seq: int
    moved_at: float


class HeldAttempt(Struct, frozen=True):
    """An attempt, with the columns of its job that ending the attempt needs."""

    job: int
    number: int
    worker_id: int
    worker: str
    session: str
    named: bool
    outcome: Outcome | None
    digest: str | None
    granted_clock: float
    claimed_at: float
    began_at: float | None
    log_size: int
    stale: bool
    job_state: State
    job_attempts: int
    job_last_attempt: int
    job_step: int
    spec_id: int
    submitter_id: int
    cancel_requested: bool
    cancel_reason: str

    @property
    def live(self) -> bool:
        return self.outcome is None

    @property
    def current(self) -> bool:
        return self.number == self.job_last_attempt

    @property
    def given_up(self) -> bool:
        """Whether the coordinator ended the attempt without hearing from its worker."""
        return self.outcome is Outcome.LOST or self.never_named

    @property
    def never_named(self) -> bool:
        """Whether the lease ended before a heartbeat or result named the attempt. Such an attempt is not counted."""
        return self.outcome is Outcome.RELEASED and not self.named


class RunWorkspace(Struct, frozen=True, omit_defaults=True):
    """Where the jobs of a run work: in a repository, whose commit may not be known yet, or in a shared folder."""

    source: str
    repo: str | None = None
    ref: str | None = None
    commit: str | None = None


class RunRow(Struct, frozen=True):
    id: int
    name: str
    submitter: str
    labels: str
    warnings: str
    retry_of: int | None
    jobs: int
    steps: int
    queued: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    created_at: float
    finished_at: float | None
    whole_canceled: bool
    origin: str | None
    next_index: int
    artifact_store: str
    workspace: str | None = None
    traceparent: str | None = None


class StepRow(Struct, frozen=True):
    run: int
    number: int
    name: str | None
    needs: list[str]
    spec_id: int
    first_index: int
    last_index: int
    jobs: int
    unfinished: int
    blockers: int


class WorkerRow(Struct, frozen=True):
    id: int
    name: str
    session: str
    hostname: str
    version: str
    labels: str
    capacity: str
    free: str
    state: WorkerState
    reason: str
    paused: bool
    drain: bool
    online: bool
    failures: int
    failed: str
    rests: int
    rest_clock: float
    seen_clock: float
    seen_at: float
    until_at: float | None
    metrics: str | None


class SignInRow(Struct, frozen=True):
    digest: str
    token_id: str
    is_link: bool
    host: str
    expires_at: float


class ImageRow(Struct, frozen=True):
    """An image that a job has built, with its submitter and the worker that built it."""

    id: int
    name: str
    digest: str
    archive: str | None
    url: str | None
    size: int
    job: int
    number: int
    repo: str | None
    commit: str | None
    seconds: float
    created_at: float
    standing: str
    submitter: str
    worker: str


class TokenRow(Struct, frozen=True):
    id: str
    role: str
    name: str
    digest: str
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    revoked_at: float | None
