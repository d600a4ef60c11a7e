"""The timeline of the pool and the Gantt of a machine: a lane per machine, a bar per attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from . import scales
from .svg import WIDTH, Chart, Legend, Numbers, Svg, group, hatching, label, picture, shorten, tag

#: With more bars than this, a chart shows busy fractions.
MOST_BARS = 500
#: So many colours tell runs apart. The next run gets the first colour again.
COLOURS = 8
#: A lane has at most this many bars above each other. If a machine held more attempts at once, busy shares are shown.
MOST_LEVELS = 16
LEFT, TOP, LANE, BAR, TALLEST = 120.0, 8.0, 22.0, 14.0, 112.0
_SHORTEST = 1.5


@dataclass(frozen=True)
class Bar:
    """An attempt. It prepared from `start` to `began`, or until its end if its program never began. `end` is None while
    it goes on."""

    attempt: str
    run: int
    start: float
    end: float | None
    began: float | None
    failed: bool
    words: str
    person: str = ""
    image: str = ""
    cpu_seconds: float | None = None
    peak_memory: int | None = None

    @property
    def address(self) -> str:
        return f"/jobs/{self.attempt.partition('/')[0]}"


@dataclass(frozen=True)
class Lane:
    """A machine, the attempts on it, and the times in which it was paused or away. `busy` has the share
    of its processors that was in use in each stretch: it is drawn if there are too many bars."""

    name: str
    bars: Sequence[Bar] = ()
    away: Sequence[tuple[float, float]] = ()
    busy: Mapping[float, float] = field(default_factory=dict)


def lanes(
    name: str, title: str, machines: Sequence[Lane], window: tuple[float, float], *, stretch: float, bars: bool
) -> Chart:
    """The machines in this window of time, with their bars or, without `bars` or if one machine held very many attempts
    at once, with the busy share of each stretch."""
    begin, end = window
    at = scales.place(begin, end, LEFT, WIDTH - 20)
    rows = [_rows(machine.bars) for machine in machines] if bars else []
    bars = bars and max(map(len, rows), default=0) <= MOST_LEVELS
    rows = rows if bars else [[] for _ in machines]
    heights = [LANE if len(each) < 2 else min(LANE * len(each), TALLEST) for each in rows]
    bottom = TOP + (sum(heights) or LANE)
    hatch = f"hatch-{name}"
    parts = [hatching(hatch), *scales.time_axis(begin, end, at, TOP, bottom)]
    top = TOP
    for machine, own, height in zip(machines, rows, heights, strict=True):
        inside = [label(LEFT - 8, LANE - 7, shorten(machine.name, 15), kind="lane", anchor="end")]
        inside.append(tag("path", d=f"M0 {height:.1f}H{WIDTH:.1f}", class_="grid"))
        if bars:
            step = height / max(1, len(own))
            for level, placed in enumerate(own):
                tall = BAR if step >= LANE else step - 1
                y = level * step + (step - tall) / 2
                inside += [_bar(bar, at, (y, tall), end, hatch) for bar in placed]
        else:
            inside += _shares(machine, at, stretch)
        inside += [_away(gone, at, height) for gone in machine.away if gone[1] > begin and gone[0] < end]
        parts.append(group(inside, transform=f"translate(0,{top:.1f})"))
        top += height
    count = sum(len(machine.bars) for machine in machines)
    what = f"{count:,} attempts" if bars else f"busy shares per {scales.duration(stretch)}"
    summary = f"{len(machines):,} machines, {what}, from {scales.clock(begin)} to {scales.clock(end)} UTC"
    svg = picture(parts, title=title, summary=summary, height=bottom + 22)
    if bars:
        return Chart(name, title, "time of day, UTC", svg, _bar_legend(machines), _bar_table(machines))
    unit = f"time of day, UTC; share of its processors in use in each {scales.duration(stretch)}"
    return Chart(name, title, unit, svg, _share_legend(), _share_table(machines))


def _rows(bars: Sequence[Bar]) -> list[list[Bar]]:
    """The bars of a machine in as few rows as needed, so that none covers another."""
    rows: list[list[Bar]] = []
    ends: list[float] = []
    for bar in sorted(bars, key=lambda bar: bar.start):
        over = float("inf") if bar.end is None else bar.end
        level = next((level for level, end in enumerate(ends) if end <= bar.start), None)
        if level is None:
            rows.append([bar])
            ends.append(over)
        else:
            rows[level].append(bar)
            ends[level] = over
    return rows


def _bar(bar: Bar, at: scales.Place, place: tuple[float, float], now: float, hatch: str) -> Svg:
    y, tall = place
    end = now if bar.end is None else bar.end
    left, right = at(bar.start), at(end)
    width = max(right - left, _SHORTEST)
    parts = [tag("rect", class_=f"attempt run{bar.run % COLOURS}", x=left, y=y, width=width, height=tall)]
    prepared = at(end if bar.began is None else bar.began) - left
    if prepared >= 1:
        parts.append(tag("rect", x=left, y=y, width=min(prepared, width), height=tall, fill=f"url(#{hatch})"))
    if bar.failed:
        parts.append(tag("rect", class_="failed-edge", x=left + width - 2, y=y - 1, width=3.0, height=tall + 2))
    return tag("a", tag("title", f"{bar.attempt}: {bar.words}"), *parts, href=bar.address)


def _away(gone: tuple[float, float], at: scales.Place, height: float) -> Svg:
    left = at(gone[0])
    return tag("rect", class_="away", x=left, y=1.0, width=max(at(gone[1]) - left, 1.0), height=height - 2)


def _shares(machine: Lane, at: scales.Place, stretch: float) -> list[Svg]:
    found = []
    for begin, share in machine.busy.items():
        tall = max(1.0, share * BAR)
        left, right = at(begin), at(begin + stretch)
        words = f"{scales.clock(begin)}: {share:.0%} busy"
        bar = tag("rect", tag("title", words), class_="share", x=left, y=LANE - 4 - tall, width=right - left - 0.5,
                  height=tall)  # fmt: skip
        found.append(bar)
    return found


def _bar_legend(machines: Sequence[Lane]) -> list[Legend]:
    seen = sorted({bar.run for machine in machines for bar in machine.bars})
    shown = [Legend(f"attempt run{run % COLOURS}", f"run {run}") for run in seen[-COLOURS:]]
    more = len(seen) - len(shown)
    if more > 0:
        shown.append(Legend("", f"and {more:,} older runs, in the same colours again"))
    return [
        *shown,
        Legend("hatched", "hatched: preparing (image, files)"),
        Legend("away", "grey: the machine was paused or away"),
        Legend("failed-edge", "red edge: the attempt failed or was lost"),
    ]


def _share_legend() -> list[Legend]:
    return [
        Legend("share", "the taller, the more of its processors were in use; full height: all of them"),
        Legend("away", "grey: the machine was paused or away"),
    ]


def _bar_table(machines: Sequence[Lane]) -> Numbers:
    found = sorted(
        ((bar, machine.name) for machine in machines for bar in machine.bars), key=lambda each: -each[0].start
    )
    rows = [
        [
            bar.attempt, machine, scales.stamp(bar.start), scales.stamp(bar.began) if bar.began else "",
            scales.stamp(bar.end) if bar.end is not None else "", bar.person, bar.image, bar.cpu_seconds,
            None if bar.peak_memory is None else round(bar.peak_memory / 2**20), bar.words,
        ]
        for bar, machine in found
    ]  # fmt: skip
    columns = ["attempt", "machine", "claimed (UTC)", "began (UTC)", "ended (UTC)", "person", "image"]
    columns += ["processor s", "peak MiB", "how"]
    return Numbers(columns, rows, [bar.address for bar, _ in found])


def _share_table(machines: Iterable[Lane]) -> Numbers:
    rows = [
        [machine.name, scales.stamp(begin), round(share, 4)]
        for machine in machines
        for begin, share in machine.busy.items()
    ]
    return Numbers(["machine", "from (UTC)", "busy share"], rows)
