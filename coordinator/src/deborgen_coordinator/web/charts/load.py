"""How many jobs waited, and how many attempts ended, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deborgen_shared.states import State

from . import scales
from .svg import WIDTH, Chart, Legend, Numbers, Svg, group, label, picture, tag

LEFT, RIGHT, TOP, TALL, GAP = 56.0, WIDTH - 20, 22.0, 90.0, 46.0


@dataclass(frozen=True)
class DepthPoint:
    """The jobs that waited and ran at one moment."""

    at: float
    queued: int
    running: int


@dataclass(frozen=True)
class Ended:
    """The attempts that ended in the stretch that begins at this moment."""

    begin: float
    succeeded: int
    other: int


def load(
    name: str, depths: Sequence[DepthPoint], ended: Sequence[Ended], window: tuple[float, float], *, stretch: float
) -> Chart:
    """Two pictures below each other with one time axis: the depth of the queue, and the throughput."""
    begin, end = window
    at = scales.place(begin, end, LEFT, RIGHT)
    second = TOP + TALL + GAP
    words = scales.duration(stretch)
    parts = [
        label(LEFT, TOP - 8, "jobs waiting and running", kind="heading"),
        *_depth(depths, window, at),
        label(LEFT, second - 8, f"attempts ended per {words}", kind="heading"),
        *scales.time_axis(begin, end, at, second, second + TALL),
        *_throughput(ended, stretch, at, second),
    ]
    total = sum(each.succeeded + each.other for each in ended)
    now = f"{depths[-1].queued:,} jobs wait now; " if depths else ""
    summary = f"{now}{total:,} attempts ended from {scales.clock(begin)} to {scales.clock(end)} UTC"
    title = "Queue and throughput"
    svg = picture(parts, title=title, summary=summary, height=second + TALL + 22)
    legend = [
        Legend("queued-line", "line: jobs waiting"),
        Legend("running-line", "dashed line: jobs running"),
        Legend("ended-well", "lower part of a bar: attempts that succeeded"),
        Legend("ended-otherwise", "upper part of a bar: attempts that ended otherwise"),
    ]
    return Chart(name, title, f"jobs; attempts per {words}; time of day, UTC", svg, legend, _table(depths, ended))


def _depth(depths: Sequence[DepthPoint], window: tuple[float, float], at: scales.Place) -> list[Svg]:
    high = max([1, *(max(each.queued, each.running) for each in depths)])
    up = scales.place(0, high, TOP + TALL, TOP)
    parts = [
        *scales.time_axis(*window, at, TOP, TOP + TALL),
        *scales.value_axis([tick for tick in scales.ticks(0, high, 4) if tick.is_integer()], up, LEFT, RIGHT),
    ]
    if depths:
        for kind in (State.QUEUED, State.RUNNING):
            points = [(at(each.at), up(getattr(each, kind))) for each in depths]
            parts.append(tag("path", d=_stairs(points), class_=f"{kind}-line"))
    return parts


def _stairs(points: Sequence[tuple[float, float]]) -> str:
    """A line that keeps each value until the next one."""
    (x, y), *others = points
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others)


def _throughput(ended: Sequence[Ended], stretch: float, at: scales.Place, top: float) -> list[Svg]:
    bottom = top + TALL
    high = max([1, *(each.succeeded + each.other for each in ended)])
    up = scales.place(0, high, bottom, top)
    ticks = [tick for tick in scales.ticks(0, high, 4) if tick.is_integer()]
    bars = []
    for each in ended:
        left, width = at(each.begin), at(each.begin + stretch) - at(each.begin) - 1
        if width <= 0:
            continue
        middle, upper = up(each.succeeded), up(each.succeeded + each.other)
        words = f"{scales.clock(each.begin)}: {each.succeeded:,} succeeded, {each.other:,} ended otherwise"
        shown = [tag("title", words)]
        if each.succeeded:
            shown.append(tag("rect", class_="ended-well", x=left, y=middle, width=width, height=bottom - middle))
        if each.other:
            shown.append(tag("rect", class_="ended-otherwise", x=left, y=upper, width=width, height=middle - upper))
        bars.append(group(shown))
    return [*scales.value_axis(ticks, up, LEFT, RIGHT), *bars]


def _table(depths: Sequence[DepthPoint], ended: Sequence[Ended]) -> Numbers:
    """One row per stretch, with the depth of the queue at its beginning."""
    rows: list[list[object]] = []
    for each in ended:
        before = [depth for depth in depths if depth.at <= each.begin]
        depth = before[-1] if before else None
        known = [depth.queued, depth.running] if depth else [None, None]
        rows.append([scales.stamp(each.begin), *known, each.succeeded, each.other])
    return Numbers(["from (UTC)", "jobs waiting", "jobs running", State.SUCCEEDED.value, "ended otherwise"], rows)
