"""The query parameters of each call. Each type decodes, validates and encodes them, and provides their schema."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from deborgen_shared.messages import END, JOB, Name, OpaqueId
from deborgen_shared.states import State

Limit = Annotated[int, Meta(ge=1, le=1000)]
Cursor = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:=-]{1,200}" + END, max_length=200)]
#: `project` or `project=thesis`
Label = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[^\n]{0,200})?" + END, max_length=264)]
RunNumber = Annotated[int, Meta(ge=1, lt=10**12)]
JobName = Annotated[str, Meta(pattern=f"^{JOB}{END}", max_length=22)]
AttemptNumber = Annotated[int, Meta(ge=1, lt=10**9)]
NonNegativeInt = Annotated[int, Meta(ge=0, lt=2**53)]


class Query(Struct, frozen=True, kw_only=True):
    """The parameters behind the question mark."""

    def pairs(self) -> list[tuple[str, Any]]:
        """The parameters that differ from their defaults, for the URL."""
        return [
            (field.encode_name, value)
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]


class NoQuery(Query, frozen=True):
    """A call without query parameters."""


class RunsQuery(Query, frozen=True):
    state: State | None = None
    submitter: Name | None = None
    label: Label | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


class RunJobsQuery(Query, frozen=True):
    state: State | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


class RunArtifactsQuery(Query, frozen=True):
    cursor: Cursor | None = None
    limit: Limit = 100


class ArtifactsQuery(Query, frozen=True):
    """Without `attempt`, the newest attempt that has any artifacts is used."""

    attempt: AttemptNumber | None = None


class ResultsQuery(Query, frozen=True):
    """With `retries=1`, a job that succeeded in a later retry of the run is replaced by its newest success."""

    format: Literal["json", "csv"] = "json"
    retries: Annotated[int, Meta(ge=0, le=1)] = 0


class JobsQuery(Query, frozen=True):
    state: State | None = None
    run: RunNumber | None = None
    worker: Name | None = None
    cursor: Cursor | None = None
    limit: Limit = 100


class LogQuery(Query, frozen=True):
    attempt: AttemptNumber | None = None
    offset: NonNegativeInt = 0
    follow: Annotated[int, Meta(ge=0, le=1)] = 0


class AppendQuery(Query, frozen=True):
    """Every worker sends its session: here or, for one more release, in the header `headers.SESSION`."""

    offset: NonNegativeInt
    session: OpaqueId | None = None


class EventsQuery(Query, frozen=True):
    """`after` is the number of an event, or the word `now` for future events only. With `before`, the list has the
    newest events with a smaller number, newest first."""

    after: NonNegativeInt | Literal["now"] = 0
    before: NonNegativeInt | None = None
    run: RunNumber | None = None
    job: JobName | None = None
    worker: Name | None = None
    limit: Limit = 100


class SecretQuery(Query, frozen=True):
    """With `shared=1`, the secret that is shared with the pool is meant, not the caller's own."""

    shared: Annotated[int, Meta(ge=0, le=1)] = 0


class LedgerQuery(Query, frozen=True):
    """`since` is a day in UTC, for example 2026-11-01; without it, the ledger covers 30 days. `by` says what a line is
    about."""

    since: date | None = None
    by: Literal["person", "machine", "both"] = "person"


class LeaveQuery(Query, frozen=True):
    session: OpaqueId | None = None


class ImagesQuery(Query, frozen=True):
    """With `replaced=1`, also images whose name belongs to a newer image."""

    replaced: Annotated[int, Meta(ge=0, le=1)] = 0
    cursor: Cursor | None = None
    limit: Limit = 100
