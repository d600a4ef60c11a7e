"""What ran where and when, how deep the queue was, and what ended: what charts show. Each reads a bounded number of
rows, however long the history is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from deborgen_shared.states import Outcome

from .. import ids
from ..storage import timelines, usage, workers
from ..storage.database import DatabaseConnection
from ..storage.rows import WorkerRow
from ..storage.timelines import RanRow
from ..storage.usage import StretchRow
from .context import Context
from .lookup import Noun, UnknownName
from .usage import MINUTE, STRETCH

#: With more attempts than this, a timeline has busy shares instead.
MOST_ATTEMPTS = 500
#: A timeline has at most this many machines: those that were last seen.
MOST_MACHINES = 60
#: Read at most this many live attempts, and this many events of a machine.
MOST_LIVE, MOST_EVENTS = 2000, 200
#: The window of the first page, in seconds.
WINDOW = 7200.0


class Ran(Struct, frozen=True):
    """An attempt of a timeline. `words` says how it ended, or that it goes on."""

    attempt: str
    run: int
    person: str
    claimed_at: float
    began_at: float | None
    finished_at: float | None
    failed: bool
    words: str
    image: str
    cpu_seconds: float | None
    peak_memory: int | None


class MachineLane(Struct, frozen=True):
    """A machine in a timeline. `busy` has the share of its processors in use per stretch."""

    machine: str
    attempts: list[Ran]
    away: list[tuple[float, float]]
    busy: dict[float, float]


class Timeline(Struct, frozen=True):
    begin: float
    end: float
    #: The seconds of a stretch of `busy`.
    stretch: float
    #: Whether the machines have attempts, and not busy shares.
    in_full: bool
    machines: list[MachineLane]
    #: How many machines are left out.
    more: int


class Depth(Struct, frozen=True):
    at: float
    queued: int
    running: int


class EndedInStretch(Struct, frozen=True):
    begin: float
    succeeded: int
    other: int


class Load(Struct, frozen=True):
    """The depth of the queue, and the attempts that ended, in the same window of time."""

    begin: float
    end: float
    stretch: float
    depths: list[Depth]
    ended: list[EndedInStretch]


def pool_timeline(ctx: Context, seconds: float = WINDOW) -> Timeline:
    """What ran in the last seconds, on every machine."""

    def look(reader: DatabaseConnection) -> Timeline:
        begin = ctx.clock.wall() - seconds
        seen = [row for row in workers.list_all(reader) if row.online or row.seen_at >= begin]
        newest = sorted(seen, key=lambda row: -row.seen_at)[:MOST_MACHINES]
        shown = sorted(newest, key=lambda row: row.name)
        return _timeline(ctx, reader, shown, seconds, len(seen) - len(shown))

    return ctx.store.read(look)


def machine_timeline(ctx: Context, machine: str, seconds: float) -> Timeline:
    """What ran in the last seconds on one machine."""

    def look(reader: DatabaseConnection) -> Timeline:
        row = workers.get(reader, machine)
        if row is None:
            raise UnknownName(Noun.WORKER, f"there is no worker {machine}")
        return _timeline(ctx, reader, [row], seconds, 0)

    return ctx.store.read(look)


def _timeline(
    ctx: Context, reader: DatabaseConnection, machines: Sequence[WorkerRow], seconds: float, more: int
) -> Timeline:
    now = ctx.clock.wall()
    begin = now - seconds
    live = timelines.live(reader, [row.id for row in machines], MOST_LIVE)
    found = list(live)
    for row in machines:
        if len(found) <= MOST_ATTEMPTS:
            found += timelines.ended(reader, row.id, begin, MOST_ATTEMPTS + 1 - len(found))
    in_full = len(found) <= MOST_ATTEMPTS
    shares = _shares(ctx, reader, machines, begin, live)
    by_machine: defaultdict[int, list[Ran]] = defaultdict(list)
    for each in found if in_full else ():
        by_machine[each.worker_id].append(_ran(each, now))
    lanes = [
        MachineLane(row.name, by_machine[row.id], away(reader, row, begin, now), shares.get(row.id, {}))
        for row in machines
    ]
    return Timeline(begin, now, float(STRETCH), in_full, lanes, more)


def _ran(row: RanRow, now: float) -> Ran:
    end = now if row.finished_at is None else row.finished_at
    how = "goes on" if row.outcome is None else row.outcome.replace("_", " ")
    why = f": {row.reason}" if row.reason and row.outcome != Outcome.SUCCEEDED else ""
    return Ran(
        attempt=ids.attempt_name(row.job, row.number),
        run=ids.run_of(row.job),
        person=row.person,
        claimed_at=row.claimed_at,
        began_at=row.began_at,
        finished_at=row.finished_at,
        failed=row.outcome not in (None, Outcome.SUCCEEDED, Outcome.CANCELED, Outcome.RELEASED),
        words=f"{row.person}, {max(0.0, end - row.claimed_at):.0f} s, {how}{why}"[:200],
        image=row.image,
        cpu_seconds=row.cpu_seconds,
        peak_memory=row.peak_memory,
    )


def _shares(
    ctx: Context, reader: DatabaseConnection, machines: Sequence[WorkerRow], begin: float, live: Iterable[RanRow]
) -> dict[int, dict[float, float]]:
    """The share of each machine's processors that was in use, by stretch: by ended and by live attempts."""
    now, first = ctx.clock.wall(), begin // STRETCH * STRETCH
    cores: defaultdict[int, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
    for each in _stretches(reader, first, machines):
        cores[each.worker_id][float(each.begin)] += each.cores
    for attempt in live:
        cpus = ctx.spec_cache.spec(reader, attempt.spec_id).job.resources.cpus
        start = max(attempt.began_at or attempt.claimed_at, first)
        at = start // STRETCH * STRETCH
        while at < now:
            inside = min(at + STRETCH, now) - max(at, start)
            cores[attempt.worker_id][at] += max(0.0, inside) * cpus
            at += STRETCH
    return {row.id: _as_shares(cores[row.id], row, now) for row in machines}


def _stretches(reader: DatabaseConnection, since: float, machines: Sequence[WorkerRow]) -> list[StretchRow]:
    one = machines[0].id if len(machines) == 1 else None
    return usage.stretches(reader, since, STRETCH, one)


def _as_shares(cores: Mapping[float, float], row: WorkerRow, now: float) -> dict[float, float]:
    cpus = float(msgspec.json.decode(row.capacity).get("cpus", 0)) or 1.0
    return {
        begin: min(1.0, max(0.0, used) / cpus / max(1.0, min(float(STRETCH), now - begin)))
        for begin, used in sorted(cores.items())
        if begin <= now
    }


#: The events with which a machine is away or paused, and those with which it is back.
_GONE = {"worker.offline", "worker.left", "worker.paused"}
_BACK = {"worker.online", "worker.registered", "worker.resumed"}


def away(reader: DatabaseConnection, row: WorkerRow, begin: float, now: float) -> list[tuple[float, float]]:
    """The times since then in which a machine was paused or away. A machine that came back while it was paused stays
    paused."""
    off: dict[str, float] = {}
    found: list[tuple[float, float]] = []
    for moment, kind, data in reversed(timelines.machine_events(reader, row.name, MOST_EVENTS)):
        if kind == "worker.paused" and _only_slowed(data):
            continue
        reason = "pause" if kind in ("worker.paused", "worker.resumed") else "line"
        if kind in _GONE:
            off.setdefault(reason, moment)
        elif kind in _BACK and (since := off.pop(reason, None)) is not None and moment > begin:
            found.append((max(since, begin), moment))
    found += [(max(since, begin), now) for since in off.values()]
    return found


def _only_slowed(data: str | None) -> bool:
    """Whether a pause means one job at a time, and no rest."""
    known = msgspec.json.decode(data) if data else {}
    return "rest_seconds" in known and not known["rest_seconds"]


def load(ctx: Context, seconds: float = WINDOW) -> Load:
    """The depth of the queue, and the attempts that ended, in the last seconds."""

    def look(reader: DatabaseConnection) -> Load:
        now = ctx.clock.wall()
        first = (now - seconds) // STRETCH * STRETCH
        depths = [
            Depth(float(row.minute * MINUTE), row.queued, row.running)
            for row in usage.depths(reader, int(first) // MINUTE)
        ]
        queued, running = usage.depth_now(reader)
        ended = {first + at * STRETCH: [0, 0] for at in range(int((now - first) // STRETCH) + 1)}
        for row in usage.stretches(reader, first, STRETCH):
            if row.begin in ended:
                ended[row.begin][0] += row.succeeded
                ended[row.begin][1] += row.attempts - row.succeeded
        counts = [EndedInStretch(begin, max(0, ok), max(0, other)) for begin, (ok, other) in ended.items()]
        return Load(first, now, float(STRETCH), [*depths, Depth(now, queued, running)], counts)

    return ctx.store.read(look)
