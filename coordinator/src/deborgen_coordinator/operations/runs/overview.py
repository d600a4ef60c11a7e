"""What people ask first about a run: why jobs failed, which warnings they have, and which of them wait or run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from deborgen_shared.messages import JobGroup, RunOverview

from ... import ids
from ...storage import groups, lease_clock
from ...storage.database import DatabaseConnection
from ...storage.groups import GroupRow
from ...storage.rows import RunRow
from .. import views
from ..context import Context
from ..lookup import find_run

#: Name at most this many groups of each kind.
MOST_GROUPS = 20
#: While a run of more jobs than this goes on, its overview may be this many seconds old: it takes up to 90 ms to group
#: 100,000 jobs, and everybody who watches the run asks every two seconds.
SMALL_RUN = 1000
KEPT_SECONDS = 2.0


@dataclass(frozen=True)
class KeptOverview:
    """An overview that may be used until this moment on the steady clock. An ended run never changes."""

    overview: RunOverview
    until: float
    of_ended: bool


def overview(ctx: Context, run: int) -> RunOverview:
    """The jobs of a run, grouped by the reasons why they failed or wait, and by their warnings."""
    return ctx.store.read(lambda reader: _look(ctx, reader, run))


def _look(ctx: Context, reader: DatabaseConnection, run: int) -> RunOverview:
    row, now = find_run(reader, run), ctx.clock.steady()
    kept, ended = ctx.overviews.get(run), row.finished_at is not None
    if kept and (kept.of_ended or (now < kept.until and not ended)):
        return kept.overview
    found = _grouped(ctx, reader, row)
    if ended or row.jobs > SMALL_RUN:
        ctx.overviews.update({run: KeptOverview(found, now + KEPT_SECONDS, ended)})
    return found


def _grouped(ctx: Context, reader: DatabaseConnection, row: RunRow) -> RunOverview:
    first, last = ids.span(row.id)
    now, clock = ctx.clock.wall(), lease_clock.read(reader)
    waiting = groups.waiting(reader, first, last, MOST_GROUPS) if row.queued else []
    return RunOverview(
        failed=[_group(each) for each in groups.failed(reader, first, last, MOST_GROUPS)] if row.failed else [],
        warnings=_warnings(groups.warned(reader, first, last)) if row.queued + row.running < row.jobs else [],
        waiting=[_group(each, now + max(0.0, (each.wait_clock or 0.0) - clock)) for each in waiting],
        assigned=groups.assigned(reader, first, last) if row.running else 0,
    )


def _group(row: GroupRow, next_try: float | None = None) -> JobGroup:
    return JobGroup(
        reason=row.text or "no reason given",
        jobs=row.jobs,
        first=ids.name(row.first),
        next_try_at=views.maybe_when(next_try),
    )


def _warnings(rows: Iterable[GroupRow]) -> list[JobGroup]:
    """One group per warning. Warnings that differ only in the details in parentheses at their end are one group, with
    the text of its first job."""
    found: dict[str, GroupRow] = {}
    for row in rows:
        for warning in dict.fromkeys(views.loads(row.text)):
            kind = re.sub(r" \(.*\)$", "", warning)
            known = found.get(kind, GroupRow(warning, 0, row.first))
            text = warning if row.first < known.first else known.text
            found[kind] = GroupRow(text, known.jobs + row.jobs, min(known.first, row.first))
    ordered = sorted(found.values(), key=lambda group: (-group.jobs, group.first))
    return [_group(row) for row in ordered[:MOST_GROUPS]]
