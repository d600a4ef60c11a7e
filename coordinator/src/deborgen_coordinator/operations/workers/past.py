"""What happened to machines themselves, and when they were there."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ...storage import timelines, workers
from ...storage.database import DatabaseConnection
from ...storage.rows import WorkerRow
from .. import views
from ..context import Context
from ..timelines import MOST_EVENTS, away

#: The availability of machines is that of this many days.
DAYS, DAY = 7, 86_400.0


class MachineEvent(Struct, frozen=True):
    """Something that happened to a machine, and to none of its jobs."""

    at: datetime
    type: str
    reason: str


def own_events(ctx: Context, machine: str, most: int) -> list[MachineEvent]:
    """What last happened to a machine itself, newest first."""
    rows = ctx.store.read(lambda reader: timelines.machine_events(reader, machine, most))
    return [
        MachineEvent(views.when(at), kind, str(views.loads(data).get("reason") or "") if data else "")
        for at, kind, data in rows
    ]


def week(ctx: Context) -> dict[str, list[float | None]]:
    """The share of each of the last seven days in which each machine was neither paused nor away, the newest day last.
    A day before a machine's first is None."""

    def look(reader: DatabaseConnection) -> dict[str, list[float | None]]:
        now = ctx.clock.wall()
        return {row.name: _days(reader, row, now) for row in workers.list_all(reader)}

    return ctx.store.read(look)


def _days(reader: DatabaseConnection, row: WorkerRow, now: float) -> list[float | None]:
    lost_times = away(reader, row, now - DAYS * DAY, now)
    events = timelines.machine_events(reader, row.name, MOST_EVENTS)
    # A machine whose first event is known did not exist before.
    first = events[-1][0] if events and len(events) < MOST_EVENTS else 0.0
    shares: list[float | None] = []
    for begin in (now - day * DAY for day in range(DAYS, 0, -1)):
        end, since = begin + DAY, max(begin, first)
        lost = sum(max(0.0, min(until, end) - max(start, since)) for start, until in lost_times)
        shares.append(None if since >= end else max(0.0, 1 - lost / (end - since)))
    return shares
