"""The audit checks that history, states, attempts, counts, logs and blobs agree. It changes nothing."""

from __future__ import annotations

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
from .. import artifact_store
from ..blobs import is_intact
from ..context import Context

KINDS = (LOST, DUPLICATED, UNEXPECTED)
#: The state changes that the lifecycle allows.
LEGAL = {(old.value, new.value) for (old, _), new in TRANSITIONS.items()}
#: Replay the histories of this many jobs at once.
PAGE = 1000


class AuditFinding(msgspec.Struct, frozen=True):
    """One contradiction; `kind` is lost, duplicated or unexpected."""

    kind: str
    check: str
    what: str
    where: str


class AuditReport(msgspec.Struct):
    """What the audit examined, and what it found."""

    totals: dict[str, int]
    findings: list[AuditFinding]

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
        """The report as text: each finding, then the counts."""
        for finding in self.findings:
            yield f"{finding.kind}: {finding.where}: {finding.what}"
        examined = ", ".join(f"{count} {name}" for name, count in self.totals.items())
        yield f"Examined {examined}."
        yield ", ".join(f"{kind} {count}" for kind, count in self.counts.items())


def run_audit(ctx: Context, *, quick: bool = False) -> AuditReport:
    """Examine everything, in one snapshot of the database. `quick` checks the sizes of blobs but not their bytes."""
    artifact_store.require(ctx)
    report = ctx.store.read(examine)
    report.findings.extend(_check_blobs(ctx, quick))
    return report


def examine(reader: DatabaseConnection) -> AuditReport:
    """Examine the rows: everything but the blobs."""
    return AuditReport(audit.totals(reader), [*_check_rows(reader), *_check_histories(reader), *_check_needs(reader)])


def _check_rows(reader: DatabaseConnection) -> Iterator[AuditFinding]:
    for check in audit.CHECKS:
        for subject, attempt in check.rows(reader):
            yield AuditFinding(check.kind, check.name, check.sentence, _name(check.subject, subject, attempt))


def _name(subject: str, key: Any, attempt: int | None) -> str:
    if subject == "job":
        return ids.attempt_name(key, attempt) if attempt else ids.name(key)
    return f"{subject} {key}"


def _check_histories(reader: DatabaseConnection) -> Iterator[AuditFinding]:
    """Replay the history of every job: each move must be legal, follow the previous one, and lead to the job's
    state."""
    states = audit.states(reader)
    for at in range(0, len(states), PAGE):
        page = states[at : at + PAGE]
        recorded = audit.moves(reader, page[0][0], page[-1][0])
        histories = {job: list(moves) for job, moves in groupby(recorded, key=lambda move: move[0])}
        for job, state in page:
            yield from _replay(job, state, histories.get(job, []))


def _replay(job: int, state: str, moves: list[tuple[int, int, str, str | None, str]]) -> Iterator[AuditFinding]:
    where = ids.name(job)
    if not moves:
        yield AuditFinding(LOST, "no_history", "the job has no history", where)
        return
    reached: str | None = None
    for _, seq, type_, old, new in moves:
        if reached is None and (old is not None or new != State.QUEUED):
            yield AuditFinding(LOST, "no_beginning", f"its history begins with {type_} (event {seq})", where)
        elif reached is not None and old != reached:
            yield AuditFinding(UNEXPECTED, "history_jumps", f"it was {reached}, but event {seq} says {old}", where)
        elif reached is not None and (old, new) not in LEGAL:
            yield AuditFinding(UNEXPECTED, "illegal_move", f"event {seq} moved it from {old} to {new}", where)
        reached = new
    if reached != state:
        yield AuditFinding(LOST, "history_and_state", f"it is {state}, but its history ends with {reached}", where)


def _check_needs(reader: DatabaseConnection) -> Iterator[AuditFinding]:
    for run, step, stored, wanted in audit.blockers(reader):
        if stored != wanted:
            what = f"step {step} waits for {stored} needed steps, but {wanted} have not succeeded"
            yield AuditFinding(UNEXPECTED, "blockers", what, f"run {run}")


def _check_blobs(ctx: Context, quick: bool) -> Iterator[AuditFinding]:
    """Every blob with a row must exist, have the size in its row, and have the digest that is its name."""
    for digest, size, upload in ctx.store.read(blobs.list_all):
        where = f"blob {digest}"
        try:
            found = ctx.blobs.size(digest, upload)
            if found is None:
                # The cleanup may have removed it since the snapshot, or it was moved: then its row has changed.
                now = ctx.store.read(partial(blobs.find, digest=digest))
                if now is None or (now.upload != upload and ctx.blobs.size(digest, now.upload) == size):
                    continue
                what = f"{ctx.blobs.uri(digest, upload)} is missing" if upload else "its file is missing"
                yield AuditFinding(LOST, "blob_missing", what, where)
            elif found != size:
                yield AuditFinding(LOST, "blob_size", f"it has {found} bytes, not {size}", where)
            elif not quick and not is_intact(ctx, digest, blobs.Stored(size, upload)):
                yield AuditFinding(LOST, "blob_damaged", "its bytes do not match its digest", where)
        except OSError as error:
            yield AuditFinding(LOST, "blob_unreadable", f"it cannot be read: {error.strerror}", where)
