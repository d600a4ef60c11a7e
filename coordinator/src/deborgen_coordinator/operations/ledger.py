"""The ledger: who gave and who used how many core, GPU and memory hours. It is shown, never enforced."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import msgspec

from deborgen_shared.messages import OWNER_LABEL, LedgerHours, LedgerRow, PoolLedger
from deborgen_shared.queries import LedgerQuery

from ..storage import usage
from ..storage.usage import UsageRow
from .context import Context
from .usage import DAY

HOUR = 3600.0
GIB = 2**30
#: Without `since`, the ledger begins this many days ago.
USUAL_DAYS = 30


def ledger(ctx: Context, query: LedgerQuery) -> PoolLedger:
    """The hours since the beginning of a day in UTC, by person, by machine or by both."""
    since = query.since or _day(ctx) - timedelta(days=USUAL_DAYS)
    begin = int(datetime(since.year, since.month, since.day, tzinfo=UTC).timestamp())
    found: dict[tuple[str | None, str | None], LedgerRow] = {}
    for row in ctx.store.read(lambda reader: usage.totals(reader, begin // DAY * DAY)):
        hours = LedgerHours(
            attempts=row.attempts, hours=row.seconds / HOUR, core_hours=row.cores / HOUR, gpu_hours=row.gpus / HOUR,
            memory_gib_hours=row.memory / HOUR / GIB,
        )  # fmt: skip
        for person, machine, column in _entries(row, query.by):
            entry = found.setdefault((person, machine), LedgerRow(person=person, machine=machine))
            setattr(entry, column, _sum(getattr(entry, column), hours))
    items = [_rounded(found[key]) for key in sorted(found, key=lambda key: (key[0] or "", key[1] or ""))]
    return PoolLedger(since=since, items=items)


def _day(ctx: Context) -> date:
    return datetime.fromtimestamp(ctx.clock.wall(), UTC).date()


def _entries(row: UsageRow, by: str) -> Iterator[tuple[str | None, str | None, str]]:
    """The rows of the ledger to which a sum belongs, and the column in each."""
    owner = owner_of(row.labels)
    own = owner == row.person
    if by == "machine":
        yield None, row.machine, "own" if own else "given"
    elif by == "both":
        yield row.person, row.machine, "own" if own else "used"
    else:
        yield row.person, None, "own" if own else "used"
        if owner is not None and not own:
            yield owner, None, "given"


def owner_of(labels: str) -> str | None:
    """The person to whom a machine belongs, according to its label."""
    owner = msgspec.json.decode(labels).get(OWNER_LABEL)
    return str(owner) if isinstance(owner, str) and owner else None


def _sum(one: LedgerHours, other: LedgerHours) -> LedgerHours:
    return LedgerHours(**{name: getattr(one, name) + getattr(other, name) for name in LedgerHours.__struct_fields__})


def _rounded(row: LedgerRow) -> LedgerRow:
    """The row with hours of four digits, which is less than a second. Sums of what was taken back may leave a trace
    below zero."""
    for hours in (row.given, row.used, row.own):
        for name in LedgerHours.__struct_fields__:
            value = max(0, getattr(hours, name))
            setattr(hours, name, round(value, 4) if isinstance(value, float) else value)
    return row
