"""A scatter plot, or a line, of one value of each job against another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import scales
from .svg import WIDTH, Chart, Legend, Numbers, Svg, label, picture, shorten, tag

#: Draw at most this many points; the table and the CSV have the same ones.
MOST_POINTS = 2000
#: Up to this many points, each is a link to its job.
MOST_LINKS = 400
LEFT, RIGHT, TOP, BOTTOM = 70.0, WIDTH - 12, 12.0, 280.0


@dataclass(frozen=True)
class Point:
    job: str
    x: Any
    y: float


def scatter(x: str, y: str, points: Sequence[Point], *, line: bool = False, scope: str = "") -> Chart:
    """The points, joined by a line in the order of x if `line` is set. An x that is not a number has a place of its own
    for each value."""
    shown = [point for point in points if math.isfinite(point.y)][:MOST_POINTS]
    words = [] if all(_is_number(point.x) for point in shown) else list(dict.fromkeys(map(_spelled, shown)))
    places = {word: float(at) for at, word in enumerate(words)}
    xs = [places[_spelled(point)] if words else float(point.x) for point in shown]
    title = f"{shorten(y, 40)} against {shorten(x, 40)}"
    parts = _frame(xs, [point.y for point in shown], words)
    if shown:
        across = scales.place(*_ends(xs), LEFT + 6, RIGHT - 6)
        up = scales.place(*_ends([point.y for point in shown]), BOTTOM - 6, TOP + 6)
        placed = sorted(zip(map(across, xs), (up(point.y) for point in shown), shown, strict=True), key=lambda p: p[0])
        if line:
            parts.append(tag("path", d="M" + "L".join(f"{a:.1f} {b:.1f}" for a, b, _ in placed), class_="value-line"))
        parts += _marks(placed, x, y)
    parts.append(label((LEFT + RIGHT) / 2, BOTTOM + 34, shorten(x, 60), kind="heading", anchor="middle"))
    parts.append(label(4.0, BOTTOM + 34, shorten(y, 30), kind="heading"))
    summary = f"{len(shown):,} jobs{scope}"
    svg = picture(parts, title=title, summary=summary, height=BOTTOM + 44)
    legend = [Legend("point", "one point per job that has both values")]
    if line:
        legend.append(Legend("value-line", f"line: the points in the order of {x}"))
    rows = [[point.job, point.x, point.y] for point in shown]
    links: list[str | None] = [f"/jobs/{point.job}" for point in shown]
    return Chart("points", title, f"across: {x}; up: {y}{scope}", svg, legend, Numbers(["job", x, y], rows, links))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _spelled(point: Point) -> str:
    return scales.value_text(point.x)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _frame(xs: Sequence[float], ys: Sequence[float], words: Sequence[str]) -> list[Svg]:
    parts = [tag("path", d=f"M{LEFT:.1f} {TOP:.1f}V{BOTTOM:.1f}H{RIGHT:.1f}", class_="axis")]
    if not xs:
        return [*parts, label((LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2, "no values yet", anchor="middle")]
    low, high = _ends(ys)
    parts += scales.value_axis(scales.ticks(low, high), scales.place(low, high, BOTTOM - 6, TOP + 6), LEFT, RIGHT)
    left, right = _ends(xs)
    across = scales.place(left, right, LEFT + 6, RIGHT - 6)
    if words:
        step = math.ceil(len(words) / 8)
        marks = [(float(at), words[at]) for at in range(0, len(words), step)]
    else:
        marks = [(tick, scales.value_text(tick)) for tick in scales.ticks(left, right)]
    return parts + [label(across(at), BOTTOM + 16, shorten(word, 12), anchor="middle") for at, word in marks]


def _marks(placed: Sequence[tuple[float, float, Point]], x: str, y: str) -> list[Svg]:
    if len(placed) > MOST_LINKS:
        # Each point is a line of no length with round ends: the whole cloud is one path.
        return [tag("path", d="".join(f"M{a:.0f} {b:.0f}h0" for a, b, _ in placed), class_="cloud")]
    found = []
    for a, b, point in placed:
        words = f"{point.job}: {y} {scales.value_text(point.y)}; {x} {scales.value_text(point.x)}"
        dot = tag("circle", cx=a, cy=b, r=3.5, class_="point")
        found.append(tag("a", tag("title", words), dot, href=f"/jobs/{point.job}"))
    return found
