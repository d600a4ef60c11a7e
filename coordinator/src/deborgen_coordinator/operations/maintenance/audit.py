"""The audit: whether history, states, attempts, counts, logs and blobs tell the same story. It changes nothing."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from deborgen_shared.states import State

from ... import ids
from ...lifecycle import TRANSITIONS
from ...storage import audit, blobs
from ...storage.audit import DUPLICATED, LOST, UNEXPECTED
from ...storage.database import DatabaseConnection
from ..context import Context

KINDS = (LOST, DUPLICATED, UNEXPECTED)
#: Moves that the table of the lifecycle allows.
LEGAL = {(old.value, new.value) for (old, _), new in TRANSITIONS.items()}
PAGE = 1000


class Finding(msgspec.Struct, frozen=True):
    """One thing that does not agree: `kind` is lost, duplicated or unexpected."""

    kind: str
    check: str
    what: str
    where: str


class Report(msgspec.Struct):
    """What was looked at, and what was found."""

    totals: dict[str, int]
    findings: list[Finding]

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(finding.kind for finding in self.findings)
        return {kind: found[kind] for kind in KINDS}

    @property
    def clean(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        return {**self.counts, "totals": self.totals, "findings": msgspec.to_builtins(self.findings)}

    def lines(self) -> Iterator[str]:
        """The report for people: each finding, then the counts."""
        for finding in self.findings:
            yield f"{finding.kind}: {finding.where}: {finding.what}"
        looked = ", ".join(f"{count} {name}" for name, count in self.totals.items())
        yield f"Looked at {looked}."
        yield ", ".join(f"{kind} {count}" for kind, count in self.counts.items())


def run_audit(ctx: Context, *, quick: bool = False) -> Report:
    """Look at everything, in one snapshot of the database. `quick` takes the blobs' bytes on trust, not their sizes."""
    report = ctx.store.read(examine)
    report.findings.extend(_by_blobs(ctx, quick))
    return report


def examine(reader: DatabaseConnection) -> Report:
    """Look at the rows: all but the bytes of the blobs."""
    return Report(audit.totals(reader), [*_by_query(reader), *_by_history(reader), *_by_needs(reader)])


def _by_query(reader: DatabaseConnection) -> Iterator[Finding]:
    for check in audit.CHECKS:
        for subject, attempt in reader.rows(check.query):
            yield Finding(check.kind, check.name, check.sentence, _name(check.subject, subject, attempt))


def _name(subject: str, key: Any, attempt: int | None) -> str:
    if subject == "job":
        return ids.attempt_name(key, attempt) if attempt else ids.name(key)
    return f"{subject} {key}"


def _by_history(reader: DatabaseConnection) -> Iterator[Finding]:
    """Play the history of every job again: each move is legal, follows the one before, and ends where the job is."""
    states = audit.states(reader)
    for at in range(0, len(states), PAGE):
        page = states[at : at + PAGE]
        told = audit.moves(reader, page[0][0], page[-1][0])
        stories = {job: list(moves) for job, moves in groupby(told, key=lambda move: move[0])}
        for job, state in page:
            yield from _play(job, state, stories.get(job, []))


def _play(job: int, state: str, story: list[tuple[int, int, str, str | None, str]]) -> Iterator[Finding]:
    where = ids.name(job)
    if not story:
        yield Finding(LOST, "no_history", "the history does not know the job", where)
        return
    at: str | None = None
    for _, seq, type_, old, new in story:
        if at is None and (old is not None or new != State.QUEUED):
            yield Finding(LOST, "no_beginning", f"its history begins with {type_} (event {seq})", where)
        elif at is not None and old != at:
            yield Finding(UNEXPECTED, "history_jumps", f"it was {at}, and event {seq} says that it was {old}", where)
        elif at is not None and (old, new) not in LEGAL:
            yield Finding(UNEXPECTED, "illegal_move", f"event {seq} moved it from {old} to {new}", where)
        at = new
    if at != state:
        yield Finding(LOST, "history_and_state", f"it is {state}, and its history ends with {at}", where)


def _by_needs(reader: DatabaseConnection) -> Iterator[Finding]:
    for run, step, stored, wanted in audit.blockers(reader):
        if stored != wanted:
            what = f"step {step} waits for {stored} of the steps that it needs, and {wanted} are not through"
            yield Finding(UNEXPECTED, "blockers", what, f"run {run}")


def _by_blobs(ctx: Context, quick: bool) -> Iterator[Finding]:
    """Every blob that the database knows is there, as long as it says, and has the bytes that its name promises."""
    for digest, size in ctx.store.read(blobs.list_all):
        where = f"blob {digest}"
        try:
            found = ctx.blobs.size(digest)
            if found is None:
                # It may have been collected since the snapshot: then its row is gone as well.
                if ctx.store.read(partial(blobs.known_blobs, digests=[digest])):
                    yield Finding(LOST, "blob_missing", "its bytes are not there", where)
            elif found != size:
                yield Finding(LOST, "blob_size", f"it has {found} bytes, not {size}", where)
            elif not quick and _digest(ctx, digest, size) != digest:
                yield Finding(LOST, "blob_damaged", "its bytes are not those that its name promises", where)
        except OSError as error:
            yield Finding(LOST, "blob_unreadable", f"it cannot be read: {error.strerror}", where)


def _digest(ctx: Context, digest: str, size: int) -> str:
    seen = hashlib.sha256()
    for piece in ctx.blobs.open_range(digest, 0, size):
        seen.update(piece)
    return seen.hexdigest()
