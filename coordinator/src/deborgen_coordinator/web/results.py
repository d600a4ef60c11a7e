"""The results of a sweep: a heat map, a scatter plot or a line, the best row and a sortable table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from deborgen_coordinator import ids
from deborgen_coordinator.operations import views
from deborgen_coordinator.operations.runs import look
from deborgen_coordinator.operations.runs import sweep_table as sweeps
from deborgen_coordinator.operations.runs.sweep_table import SweepTable
from deborgen_coordinator.web import figures
from deborgen_coordinator.web.charts import heatmap, points, scales
from deborgen_coordinator.web.charts.svg import Chart
from deborgen_coordinator.web.pages import PageRequest, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.results_table import SMALLER_IS_BETTER, from_wire

ROWS = 50
#: A table that is sorted by a value ends after this many rows; the CSV has all.
MOST_SORTED = 1000
#: A selector offers at most this many values of an axis.
MOST_VALUES = 200
KINDS = {"map": "heat map", "line": "line", "points": "scatter plot"}
#: The parameters of the address that hold the value of an axis begin with this.
AT = "at."


@dataclass(frozen=True)
class Choice:
    """What the address asks for, with a default for everything that it does not say."""

    step: str | None
    kind: str
    x: str
    y: str
    value: str
    largest: bool
    #: For each axis the place of the value that a map or a line shows.
    at: dict[str, int]
    sort: str
    first: int

    def address(self, **changes: Any) -> str:
        """The parameters of the page with these changes."""
        given = {
            "step": self.step or "", "kind": self.kind, "x": self.x, "y": self.y, "value": self.value,
            "best": "largest" if self.largest else "smallest", "sort": self.sort,
            **{AT + name: str(place) for name, place in self.at.items()}, **changes,
        }  # fmt: skip
        return "?" + urlencode({name: text for name, text in given.items() if text != ""})


class DecodedColumns:
    """The numbers of a table, each column decoded once per page."""

    def __init__(self, table: SweepTable) -> None:
        self._table = table
        self._known: dict[str, list[float | None]] = {}

    def __getitem__(self, name: str) -> list[float | None]:
        if name not in self._known:
            self._known[name] = self._table.numbers(name)
        return self._known[name]


def _read(request: PageRequest) -> tuple[SweepTable, list[str | None], Choice]:
    """The step that the address asks for, the names of all steps, and the choice."""
    query = request.query
    table, steps = sweeps.sweep_table(request.ctx, request.run, query.get("step") or None)
    axes, names = table.axes, table.names
    by_size = sorted(axes, key=lambda name: -len(axes[name].places))
    value = _one_of(query, "value", names, next((each for each in names if each in SMALLER_IS_BETTER), ""))
    usual = "points" if len(axes) == 0 else "line" if len(axes) == 1 else "map"
    kind = _one_of(query, "kind", [*KINDS], usual)
    across = [*axes, *(names if kind == "points" else ())]
    x = _one_of(query, "x", across, by_size[0] if by_size else "")
    rest = [name for name in by_size if name != x]
    y = _one_of(query, "y", rest, "")
    fixed = {name: _place(query.get(AT + name, ""), len(axes[name].places)) for name in axes}
    better = query.get("best") or ("smallest" if value in SMALLER_IS_BETTER else "largest")
    sort = _one_of(query, "sort", ["job", *names], "job")
    first = _place(query.get("first", ""), table.jobs)
    return table, steps, Choice(table.step, kind, x, y, value, better == "largest", fixed, sort, first)


def _one_of(query: dict[str, str], name: str, known: list[str], usual: str) -> str:
    wanted = query.get(name, "")
    return wanted if wanted in known else usual or (known[0] if known else "")


def _place(text: str, count: int) -> int:
    """A place that the address names; 0 if it is not one."""
    return min(int(text), max(0, count - 1)) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _chart(table: SweepTable, choice: Choice, columns: DecodedColumns) -> tuple[Chart | None, str]:
    """The chart, and a sentence about what it leaves out; None if there is nothing to draw."""
    if not choice.value or not choice.x:
        return None, ""
    numbers = columns[choice.value]
    if choice.kind == "points":
        return _scatter(table, choice, columns)
    if choice.kind == "line" or not choice.y:
        others = {name: place for name, place in choice.at.items() if name != choice.x}
        axis = table.axes[choice.x]
        chosen = [at for at in table.at(others) if numbers[at] is not None]
        found = [points.Point(table.job(at), axis.column[at], numbers[at] or 0.0) for at in chosen]
        chart = points.scatter(choice.x, choice.value, found, line=True, scope=_scope(table, others))
        return chart, _cut(len(found), points.MOST_POINTS, "points")
    return _map(table, choice, numbers)


def _map(table: SweepTable, choice: Choice, numbers: list[float | None]) -> tuple[Chart, str]:
    x, y = table.axes[choice.x], table.axes[choice.y]
    others = {name: place for name, place in choice.at.items() if name not in (choice.x, choice.y)}
    wide = min(len(x.values), heatmap.MOST_CELLS)
    tall = max(1, min(len(y.values), heatmap.MOST_CELLS // wide))
    cells = {}
    for at in table.at(others):
        place = x.place(at), y.place(at)
        if place[0] < wide and place[1] < tall:
            cells[place] = heatmap.Cell(table.job(at), numbers[at])
    axes = heatmap.Axis(x.name, x.values[:wide]), heatmap.Axis(y.name, y.values[:tall])
    chart = heatmap.heatmap(*axes, choice.value, cells, scope=_scope(table, others))
    return chart, _cut(len(x.values) * len(y.values), wide * tall, "cells")


def _scatter(table: SweepTable, choice: Choice, columns: DecodedColumns) -> tuple[Chart, str]:
    numbers = columns[choice.value]
    axis = table.axes.get(choice.x)
    across: Any = axis.column if axis else columns[choice.x]
    known = [at for at, value in enumerate(numbers) if value is not None and across[at] is not None]
    step = -(-len(known) // points.MOST_POINTS) or 1
    found = [points.Point(table.job(at), across[at], numbers[at] or 0.0) for at in known[::step]]
    return points.scatter(choice.x, choice.value, found), _cut(len(known), len(found), "points")


def _scope(table: SweepTable, fixed: dict[str, int]) -> str:
    """The values of the axes that a chart does not show."""
    words = [f"{name} {scales.value_text(table.axes[name].values[place])}" for name, place in fixed.items()]
    return f"; where {', '.join(words)}" if words else ""


def _cut(there: int, shown: int, what: str) -> str:
    return f"{min(shown, there):,} of {there:,} {what} are shown. The CSV has all results." if there > shown else ""


def _rows(request: PageRequest, table: SweepTable, choice: Choice, columns: DecodedColumns) -> tuple[list[Any], bool]:
    """A page of the table, and whether there is a next one."""
    end = choice.first + ROWS
    places: Sequence[int]
    if choice.sort == "job":
        places, more = range(choice.first, min(end, table.jobs)), end < table.jobs
    else:
        order = sweeps.ranked(columns[choice.sort], min(end, MOST_SORTED) + 1, largest=choice.largest)
        places, more = order[choice.first : end], len(order) > end
    return [_row(table, found) for found in sweeps.rows(request.ctx, table, places)], more


def _row(table: SweepTable, found: Any) -> dict[str, Any]:
    params, result = views.loads(found.params), views.loads(found.result) or {}
    return {
        "job": ids.name(found.id),
        "state": found.state,
        "axes": [params.get(name) for name in table.axes],
        "values": [from_wire(result.get(name)) for name in table.names],
        "seconds": found.seconds,
        "worker": found.worker,
    }


@page("/runs/{run}/results")
def results(request: PageRequest) -> HtmlAnswer:
    run = look.get_run(request.ctx, request.run)
    table, steps, choice = _read(request)
    columns = DecodedColumns(table)
    chart, cut = _chart(table, choice, columns)
    at = sweeps.best(columns[choice.value], largest=choice.largest) if choice.value else None
    best = None if at is None else _row(table, sweeps.rows(request.ctx, table, [at])[0])
    rows, more = _rows(request, table, choice, columns)
    return request.render(
        "results.html",
        run=run, table=table, steps=steps, choice=choice, kinds=KINDS, chart=figures.on_page(chart) if chart else None,
        cut=cut, best=best, rows=rows, more=more, page_size=ROWS, most_values=MOST_VALUES, at_prefix=AT,
        value_text=scales.value_text,
    )  # fmt: skip


def _drawn(request: PageRequest) -> Chart:
    table, _, choice = _read(request)
    chart, _ = _chart(table, choice, DecodedColumns(table))
    if chart is None:
        raise Refusal(Code.NOT_FOUND, f"run {request.run} has no results to draw yet", "wait until jobs have ended")
    return replace(chart, name=f"run-{request.run}-{choice.kind}")


@page("/runs/{run}/results/chart.svg")
def chart_svg(request: PageRequest) -> HtmlAnswer:
    return figures.as_svg(_drawn(request))


@page("/runs/{run}/results/chart.csv")
def chart_csv(request: PageRequest) -> HtmlAnswer:
    return figures.as_csv(_drawn(request))


@page("/runs/{run}/results/cell")
def cell(request: PageRequest) -> HtmlAnswer:
    """The job of a cell of the map: `column` and `row` count from 0."""
    table, _, choice = _read(request)
    if choice.x in table.axes and choice.y in table.axes:
        wanted = {**choice.at, choice.x: _number(request, "column"), choice.y: _number(request, "row")}
        for at in table.at(wanted):
            return request.go(f"/jobs/{table.job(at)}")
    raise Refusal(Code.NOT_FOUND, "there is no job in this cell", "go back, and choose a cell with a colour")


def _number(request: PageRequest, name: str) -> int:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
