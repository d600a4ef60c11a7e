"""The heat map of a sweep: a cell per pair of values, coloured by a result."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import scales
from .svg import WIDTH, Chart, Legend, Numbers, Svg, group, label, picture, shorten, tag

MOST_CELLS = 5000
#: Up to this many cells, each is a link of its own. Larger maps are a few long paths; the page's script finds the cell.
MOST_LINKS = 400
#: The steps of the colour scale.
SHADES = 10
LEFT, TOP, BOTTOM = 120.0, 8.0, 46.0
_TALLEST, _MOST_LABELS = 420.0, 14


@dataclass(frozen=True)
class Cell:
    """A job of the map; `value` is None as long as it has none."""

    job: str
    value: float | None


@dataclass(frozen=True)
class Axis:
    name: str
    values: Sequence[Any]


def heatmap(x: Axis, y: Axis, value: str, cells: Mapping[tuple[int, int], Cell], *, scope: str = "") -> Chart:
    """The cells by the positions of their values on the two axes. `scope` says in words what the other axes are."""
    columns, rows = len(x.values), len(y.values)
    wide = (WIDTH - LEFT - 8) / max(1, columns)
    tall = min(wide, _TALLEST / max(1, rows), 36.0) if rows > 1 else min(wide, 36.0)
    tall = max(tall, min(4.0, _TALLEST / max(1, rows)))
    finite = [c.value for c in cells.values() if c.value is not None and math.isfinite(c.value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)

    def shade(cell: Cell) -> int | None:
        if cell.value is None or not math.isfinite(cell.value):
            return None
        return min(SHADES - 1, int((cell.value - low) / ((high - low) or 1.0) * SHADES))

    bottom = TOP + tall * rows
    draw = _links if len(cells) <= MOST_LINKS else _paths
    inside = draw(cells, shade, (wide, tall), (x, y, value))
    drawn = group(inside, transform=f"translate({LEFT:.1f},{TOP:.1f})", class_="cells", data_columns=columns,
                  data_rows=rows, data_wide=f"{wide:.4f}", data_tall=f"{tall:.4f}")  # fmt: skip
    title = f"{shorten(value, 40)} by {shorten(x.name, 40)} and {shorten(y.name, 40)}"
    parts = [drawn, *_x_labels(x, wide, bottom), *_y_labels(y, tall)]
    span = f"from {scales.value_text(low)} to {scales.value_text(high)}" if finite else "no values yet"
    summary = f"{len(cells):,} jobs, {len(finite):,} with a value, {span}{scope}"
    svg = picture(parts, title=title, summary=summary, height=bottom + BOTTOM)
    unit = f"columns: {x.name}; rows: {y.name}; colour: {value}{scope}"
    return Chart("heatmap", title, unit, svg, _legend(low, high, bool(finite)), _table(x, y, value, cells))


def _links(cells: Mapping[tuple[int, int], Cell], shade: Any, size: tuple[float, float], names: Any) -> list[Svg]:
    x, y, value = names
    wide, tall = size
    found = []
    for (column, row), cell in cells.items():
        step = shade(cell)
        known = "no value" if cell.value is None else scales.value_text(cell.value)
        words = (
            f"{cell.job}: {value} {known}; {x.name} {scales.value_text(x.values[column])}, "
            f"{y.name} {scales.value_text(y.values[row])}"
        )
        box = tag("rect", class_="none" if step is None else f"q{step}", x=column * wide, y=row * tall,
                  width=wide - 0.5, height=tall - 0.5)  # fmt: skip
        found.append(tag("a", tag("title", words), box, href=f"/jobs/{cell.job}"))
    return found


def _paths(cells: Mapping[tuple[int, int], Cell], shade: Any, size: tuple[float, float], names: Any) -> list[Svg]:
    """One path per shade: each cell is a piece of a line that is as thick as a row. Neighbours share a piece."""
    wide, tall = size
    by_shade: defaultdict[str, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (column, row), cell in cells.items():
        step = shade(cell)
        by_shade["none" if step is None else f"q{step}"][row].append(column)
    found = []
    for kind, rows in sorted(by_shade.items()):
        drawn = "".join(f"M{first} {row}.5h{length}" for row, at in sorted(rows.items()) for first, length in _runs(at))
        found.append(tag("path", d=drawn, class_=f"line {kind}"))
    return [group(found, transform=f"scale({wide:.4f},{tall:.4f})")]


def _runs(columns: list[int]) -> list[tuple[int, int]]:
    """Adjacent columns as pairs of the first and their number."""
    found: list[tuple[int, int]] = []
    for column in sorted(columns):
        if found and column == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((column, 1))
    return found


def _some(count: int, most: int) -> range:
    """Positions of the labels on an axis with this many values."""
    return range(0, count, max(1, math.ceil(count / most)))


def _x_labels(x: Axis, wide: float, bottom: float) -> list[Svg]:
    most = max(1, min(_MOST_LABELS, int((WIDTH - LEFT) / 60)))
    found = [
        label(LEFT + (at + 0.5) * wide, bottom + 14, shorten(scales.value_text(x.values[at]), 9), anchor="middle")
        for at in _some(len(x.values), most)
    ]
    return [*found, label((LEFT + WIDTH) / 2, bottom + 34, shorten(x.name, 60), kind="heading", anchor="middle")]


def _y_labels(y: Axis, tall: float) -> list[Svg]:
    most = max(1, int(len(y.values) * tall / 14))
    found = [
        label(LEFT - 6, TOP + (at + 0.5) * tall + 4, shorten(scales.value_text(y.values[at]), 14), anchor="end")
        for at in _some(len(y.values), most)
    ]
    return [*found, label(4.0, TOP + len(y.values) * tall + 34, f"rows: {shorten(y.name, 16)}", kind="heading")]


def _legend(low: float, high: float, known: bool) -> list[Legend]:
    none = Legend("none", "no value: the job has not ended, failed, or has no such result")
    if not known:
        return [none]
    if low == high:
        return [Legend("q0", f"all values are {scales.value_text(low)}"), none]
    steps = (0, SHADES // 3, 2 * SHADES // 3, SHADES - 1)
    words = ("lowest", "", "", "highest")
    at = [low + (high - low) * ((step + 0.5) / SHADES) for step in steps]
    at[0], at[-1] = low, high
    return [
        *(
            Legend(f"q{step}", f"{word}: {scales.value_text(value)}" if word else f"about {scales.value_text(value)}")
            for step, word, value in zip(steps, words, at, strict=True)
        ),
        none,
    ]


def _table(x: Axis, y: Axis, value: str, cells: Mapping[tuple[int, int], Cell]) -> Numbers:
    ordered = sorted(cells.items(), key=lambda each: (each[0][1], each[0][0]))
    rows = [[cell.job, x.values[column], y.values[row], cell.value] for (column, row), cell in ordered]
    return Numbers(["job", x.name, y.name, value], rows, [f"/jobs/{cell.job}" for _, cell in ordered])
