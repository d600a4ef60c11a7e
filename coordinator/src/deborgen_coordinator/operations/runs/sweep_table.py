"""The results of a step as columns: its axes, its values, and the jobs at chosen places. For charts of up to 100,000
jobs, which must not read a row per job each time."""

from __future__ import annotations

import heapq
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from deborgen_shared.errors import Code, Refusal
from deborgen_shared.results_table import from_wire

from ... import ids
from ...storage import jobs, specs
from ...storage.jobs import JobColumns, JobWithResult
from ...storage.rows import RunRow, StepRow
from ..context import Context
from ..lookup import find_run
from . import look

#: Read this many jobs at once.
PART = 10_000
#: A result of more characters is left out of charts, and after so many characters in all, no further jobs are read.
LONGEST_RESULT, MOST_TEXT = 8_000, 24_000_000
#: Look for the names of values in this many results, and offer at most so many names.
LOOK_AT, MOST_NAMES = 300, 60
#: Keep at most this many columns of numbers.
MOST_KEPT = 4
#: While a run goes on, its columns may be this many seconds old.
KEPT_SECONDS = 2.0


@dataclass(frozen=True)
class SweepAxis:
    """A parameter: its value in each job, and the different values in the order of their first jobs, each with its
    place in this order."""

    name: str
    column: list[Any]
    places: dict[Any, int]

    @property
    def values(self) -> list[Any]:
        return list(self.places)

    def place(self, at: int) -> int:
        """The place of a job's value."""
        return self.places[self.column[at]]


@dataclass(frozen=True)
class SweepTable:
    """A step of a run. Every column has one entry per job, in the order of the jobs' ids. `left_out` counts the jobs
    that are not read because the results are too large."""

    run: int
    step: str | None
    ids: Sequence[int]
    axes: dict[str, SweepAxis]
    names: list[str]
    left_out: int
    results: str
    _numbers: dict[str, list[float | None]] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        return len(self.ids)

    def job(self, at: int) -> str:
        return ids.name(self.ids[at])

    def numbers(self, name: str) -> list[float | None]:
        """A value of each job; None if it has none that is a number. A few columns are kept."""
        known = self._numbers.get(name)
        if known is None:
            values = _column(self.results, name)
            known = [value if type(value) is float else _number(value) for value in values]
            if len(self._numbers) < MOST_KEPT:
                self._numbers[name] = known
        return known

    def at(self, fixed: Mapping[str, int]) -> Sequence[int]:
        """The jobs whose axes have these values; `fixed` has the place of the value of some axes."""
        found: Sequence[int] = range(self.jobs)
        for name, wanted in fixed.items():
            axis = self.axes[name]
            if not 0 <= wanted < len(axis.places):
                return []
            value, column = axis.values[wanted], axis.column
            if len(found) == len(column):
                found = [at for at, each in enumerate(column) if each == value]
            else:
                found = [at for at in found if column[at] == value]
        return found


def _column(results: str, name: str) -> list[Any]:
    """The values of this name in JSON objects with commas between them. Decoding just one field of each is quick."""
    if _UNUSUAL.search(name):
        return [None if each is None else each.get(name) for each in msgspec.json.decode(f"[{results}]")]
    kind = msgspec.defstruct("OneValue", [("value", Any, None)], rename={"value": name}) | None
    found = msgspec.json.decode(f"[{results}]", type=list[kind])  # type: ignore[valid-type]
    return [None if each is None else each.value for each in found]


#: Characters that the name of a decoded field must not have.
_UNUSUAL = re.compile(r'[\\"\x00-\x1f]')


def _number(value: Any) -> float | None:
    value = from_wire(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def best(numbers: Sequence[float | None], *, largest: bool) -> int | None:
    """The place of the best number; None if there is none."""
    found = ranked(numbers, 1, largest=largest)
    return found[0] if found else None


def ranked(numbers: Sequence[float | None], most: int, *, largest: bool) -> list[int]:
    """The places of the first numbers in their order."""
    known = ((value, at) for at, value in enumerate(numbers) if value is not None and not math.isnan(value))
    found = heapq.nlargest(most, known, _by_value) if largest else heapq.nsmallest(most, known)
    return [at for _, at in found]


def _by_value(pair: tuple[float, int]) -> tuple[float, int]:
    """The first of equal numbers stays the first."""
    return pair[0], -pair[1]


def sweep_table(ctx: Context, run: int, step: str | None = None) -> tuple[SweepTable, list[str | None]]:
    """A step of a run as columns, and the names of all its steps. Without a name, it is the step with the most jobs."""

    def steps_of(reader: Any) -> tuple[RunRow, list[StepRow]]:
        return find_run(reader, run), specs.steps(reader, run)

    owner, steps = ctx.store.read(steps_of)
    named = {each.name: each for each in steps}
    if step is not None and step not in named:
        raise Refusal(Code.NOT_FOUND, f"run {run} has no step {step!r}", "choose one of the steps on the page")
    chosen = named[step] if step is not None else max(steps, key=lambda each: each.jobs)
    kept, now = ctx.sweep_tables.get((run, chosen.number)), ctx.clock.steady()
    if kept is None or (kept[1] is not None and kept[1] <= now):
        has_loops = owner.next_index > 0
        table = _read_loops(ctx, chosen) if has_loops else _read(ctx, chosen, kept[0] if kept else None)
        kept = (table, None if owner.finished_at is not None else now + KEPT_SECONDS)
        ctx.sweep_tables.update({(run, chosen.number): kept})
    return kept[0], list(named)


def _read(ctx: Context, step: StepRow, known: SweepTable | None) -> SweepTable:
    """Read the columns part by part, so that no reader of the database waits for long. Parameters never change."""
    first, last = ids.key(step.run, step.first_index), ids.key(step.run, step.last_index)
    parts, size = [], 0
    while size <= MOST_TEXT:
        read = partial(jobs.as_columns, first=first, last=last, most=PART, longest=LONGEST_RESULT)
        part = ctx.store.read(read)
        if part is None:
            break
        parts.append(part)
        size += len(part.params) + len(part.results)
        first = part.last + 1
        if part.jobs < PART:
            break
    first = ids.key(step.run, step.first_index)
    count = sum(part.jobs for part in parts)
    keys: Sequence[int] = range(first, first + count)
    if parts and parts[-1].last != keys[-1]:  # a retry has only some of the jobs
        keys = ctx.store.read(partial(jobs.ids_in_span, first=first, last=parts[-1].last))
    results = ",".join(part.results for part in parts)
    axes = known.axes if known and known.jobs == count else _axes([part.params for part in parts])
    return SweepTable(step.run, step.name, keys, axes, _names(parts), max(0, step.jobs - count), results)


def _read_loops(ctx: Context, step: StepRow) -> SweepTable:
    """One entry per loop: its newest work. Runs with loops have few jobs, so a row per job is read."""
    found = [row for row in look.results(ctx, step.run) if row.step == step.name]
    keys = [ids.parse_attempt(f"{row.job}/1")[0] for row in found]  # in a retry, the work may be that of an earlier run
    params, results = (
        ",".join(msgspec.json.encode(getattr(row, name)).decode() for row in found) for name in ("params", "result")
    )
    part = JobColumns(len(found), 0, params, results)
    return SweepTable(step.run, step.name, keys, _axes([params] if found else []), _names([part]), 0, results)


def _axes(parts: Sequence[str]) -> dict[str, SweepAxis]:
    """The parameters of all jobs, which have the same names in every job of a step."""
    names = list(_first_object(parts[0])) if parts else []
    if not names:
        return {}
    fields = [f"p{at}" for at in range(len(names))]
    spelled = dict(zip(fields, names, strict=True))
    kind = msgspec.defstruct("JobParams", [(each, Any, None) for each in fields], rename=spelled)
    found = [job for part in parts for job in msgspec.json.decode(f"[{part}]", type=list[kind])]  # type: ignore[valid-type]
    columns = {name: list(map(attrgetter(each), found)) for name, each in zip(names, fields, strict=True)}
    return {
        name: SweepAxis(name, column, {value: at for at, value in enumerate(dict.fromkeys(column))})
        for name, column in columns.items()
    }


def _first_object(text: str) -> dict[str, Any]:
    """The first of JSON objects with commas between them."""
    found, _ = json.JSONDecoder().raw_decode(text)
    return dict(found)


def _names(parts: Sequence[JobColumns]) -> list[str]:
    """The names of the values that are numbers, among the first results."""
    found: dict[str, None] = {}
    looked = 0
    for part in parts:
        # Decoding a raw value only finds its end.
        for raw in msgspec.json.decode(f"[{part.results}]", type=list[msgspec.Raw]):
            if bytes(raw) == b"null":
                continue
            result = msgspec.json.decode(raw)
            found.update((name, None) for name, value in result.items() if _number(value) is not None)
            looked += 1
            if looked >= LOOK_AT or len(found) >= MOST_NAMES:
                return list(found)[:MOST_NAMES]
    return list(found)


def rows(ctx: Context, table: SweepTable, places: Sequence[int]) -> list[JobWithResult]:
    """The jobs at these places, in this order."""
    wanted = [table.ids[at] for at in places]
    found = ctx.store.read(lambda reader: jobs.results_of(reader, wanted))
    return [found[key] for key in wanted if key in found]
