"""The values that storage returns: plain, frozen and typed. Their fields are the columns that a query selects."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_type_hints

from deborgen_shared.states import Outcome, State, WorkerState

from .database import Row

R = TypeVar("R")

#: Field types that the database stores as another type, and how to convert the stored value.
CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    bool: bool, State: State, WorkerState: WorkerState, list[str]: json.loads,
    Outcome | None: lambda word: Outcome(word) if word else None,
}  # fmt: skip


def columns(kind: Any, model: Any, **renamed: Any) -> list[Any]:
    """The columns that a query selects to build a value: the model's columns of the same names, or the ones in
    `renamed`."""
    return [renamed.get(field.name) or getattr(model, field.name) for field in fields(kind)]


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


@dataclass(frozen=True, slots=True)
class JobRow:
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


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt, with the facts about its job that ending the attempt needs."""

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
        """Whether the coordinator ended it without hearing from its worker."""
        return self.outcome is Outcome.LOST or self.never_named

    @property
    def never_named(self) -> bool:
        """Whether its lease ended before a heartbeat or result named it. Then it did not count as an attempt."""
        return self.outcome is Outcome.RELEASED and not self.named


@dataclass(frozen=True, slots=True)
class RunRow:
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


@dataclass(frozen=True, slots=True)
class StepRow:
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


@dataclass(frozen=True, slots=True)
class WorkerRow:
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
    rests: int
    rest_clock: float
    seen_clock: float
    seen_at: float
    until_at: float | None
    metrics: str | None


@dataclass(frozen=True, slots=True)
class TokenRow:
    id: str
    role: str
    name: str
    digest: str
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    revoked_at: float | None
