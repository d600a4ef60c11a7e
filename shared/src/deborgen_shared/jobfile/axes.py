"""The values along one axis of a sweep: inclusive integer ranges, and evenly spaced numbers."""

from __future__ import annotations

from collections.abc import Sequence

Number = int | float


def significant(value: float) -> float:
    """The float with 12 significant digits, so that a generated value equals the one that people write."""
    return float(f"{value:.12g}")


def integers(first: int, last: int, step: int = 1) -> range:
    """From the first to the last, which is included when the steps reach it."""
    return range(first, last + (1 if step > 0 else -1), step)


def steps_between(first: Number, last: Number, step: Number) -> int:
    """How many values `stepped` gives; zero or less when the step leads away from the end."""
    return int((last - first) / step + 1e-9) + 1 if (last - first) * step >= 0 else 0


def stepped(first: Number, last: Number, step: Number) -> Sequence[float]:
    """From the first towards the last by a step that is not an integer."""
    return [significant(first + i * step) for i in range(steps_between(first, last, step))]


def linear(first: Number, last: Number, count: int) -> Sequence[Number]:
    """Evenly spaced, both ends included."""
    width = last - first
    return _tidy(first, last, [first + width * (i / (count - 1)) for i in range(count)])


def logarithmic(first: Number, last: Number, count: int) -> Sequence[Number]:
    """Evenly spaced on a logarithmic scale, both ends included. The ends have the same sign, and are not zero."""
    ratio = last / first
    return _tidy(first, last, [first * ratio ** (i / (count - 1)) for i in range(count)])


def _tidy(first: Number, last: Number, values: list[float]) -> Sequence[Number]:
    """Rounded, with the ends exact. Between integers, values that are all integers stay integers."""
    tidy = [significant(value) for value in values]
    if isinstance(first, int) and isinstance(last, int) and all(value.is_integer() for value in tidy):
        return [first, *(int(value) for value in tidy[1:-1]), last]
    return [float(first), *tidy[1:-1], float(last)]
