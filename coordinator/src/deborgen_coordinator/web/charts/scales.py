"""Axes: round numbers and times for their ticks, and the text of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from .svg import Svg, label, tag

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
#: The distances between the ticks of a time axis.
_STEPS = (MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY)

Place = Callable[[float], float]


def place(low: float, high: float, begin: float, end: float) -> Place:
    """The function that puts the values between `low` and `high` between two coordinates."""
    width = high - low or 1.0
    return lambda value: begin + (min(max(value, low), high) - low) / width * (end - begin)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two values, at most this many."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    count = int((high - low) / step + 1e-9) + 2
    found = [round((first + i) * step, 12) for i in range(count)]
    return [value for value in found if low <= value <= high * (1 + 1e-9) or math.isclose(value, high)]


def time_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round moments between two times, in UTC."""
    step = next((step for step in _STEPS if (high - low) / step <= most), DAY * math.ceil((high - low) / DAY / most))
    first = math.ceil(low / step)
    return [(first + i) * step for i in range(int((high - low) // step) + 1) if (first + i) * step <= high]


def clock(moment: float, span: float = HOUR) -> str:
    """A moment on a time axis: the time of day or, on a long axis, the date too."""
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M" if span <= DAY else "%d %b %H:%M")


def stamp(moment: float) -> str:
    """A moment in a table."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """How long something took, in words: 45 s, 3 min 20 s, 2 h 5 min."""
    if seconds < MINUTE:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    whole, rest = divmod(round(seconds if seconds < HOUR else seconds / MINUTE), 60)
    large, small = ("min", "s") if seconds < HOUR else ("h", "min")
    return f"{whole} {large}" + (f" {rest} {small}" if rest else "")


def value_text(value: Any) -> str:
    """A value of a chart: numbers with at most four significant digits, other values as they are."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else f"{value:.4g}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def time_axis(low: float, high: float, at: Place, top: float, bottom: float) -> list[Svg]:
    """The ticks of a time axis as lines from top to bottom, each with its time below."""
    drawn: list[Svg] = []
    for moment in time_ticks(low, high):
        drawn.append(tag("path", d=f"M{at(moment):.1f} {top:.1f}V{bottom:.1f}", class_="grid"))
        drawn.append(label(at(moment), bottom + 14, clock(moment, high - low), anchor="middle"))
    return drawn


def value_axis(values: Sequence[float], at: Place, left: float, right: float) -> list[Svg]:
    """The ticks of a vertical axis as lines from left to right, each with its value to the left."""
    drawn: list[Svg] = []
    for value in values:
        drawn.append(tag("path", d=f"M{left:.1f} {at(value):.1f}H{right:.1f}", class_="grid"))
        drawn.append(label(left - 6, at(value) + 4, value_text(_short(value)), anchor="end"))
    return drawn


def _short(value: float) -> float | int:
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else value
