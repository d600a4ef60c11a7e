"""The values along one axis of a sweep: inclusive integer ranges, and evenly spaced numbers.

An axis knows its length without making its values: one that is too long costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Number = int | float

#: An integer ratio cannot fit more steps into 64 bits.
_LONGEST_OF_INTEGERS = 64


def significant(value: float) -> float:
    """The float with 12 significant digits, so that a generated value equals the one that people write."""
    return float(f"{value:.12g}")


class Spaced(Sequence[Number]):
    """Numbers that are computed from their place."""

    def __init__(self, count: int, at: Callable[[int], Number]) -> None:
        self._count = count
        self._at = at

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self._at(i) for i in range(self._count)[place]]
        return self._at(range(self._count)[place])


def integers(first: int, last: int, step: int = 1) -> range:
    """From the first to the last, which is included when the steps reach it."""
    return range(first, last + (1 if step > 0 else -1), step)


def steps_between(first: Number, last: Number, step: Number) -> int:
    """How many values `stepped` gives; zero when the step leads away from the end."""
    steps = (last - first) / step
    if steps < 0:
        return 0
    return int(min(steps, 1e18) + 1e-9) + 1


def stepped(first: Number, last: Number, step: Number) -> Sequence[Number]:
    """From the first towards the last by a step that is not an integer."""
    return Spaced(steps_between(first, last, step), lambda i: significant(first + i * step))


def linear(first: Number, last: Number, count: int) -> Sequence[Number]:
    """Evenly spaced, both ends included; integers when all of them are."""
    if isinstance(first, int) and isinstance(last, int) and (last - first) % (count - 1) == 0:
        return integers(first, last, (last - first) // (count - 1))
    return _between(first, last, count, lambda share: first + (last - first) * share)


def logarithmic(first: Number, last: Number, count: int) -> Sequence[Number]:
    """Evenly spaced on a logarithmic scale, both ends included and above 0; integers when all of them are."""
    ratio = last / first
    values = _between(first, last, count, lambda share: first * ratio**share)
    if isinstance(first, int) and isinstance(last, int) and count <= _LONGEST_OF_INTEGERS:
        whole = [int(value) for value in values]
        if whole == list(values):
            return [first, *whole[1:-1], last]
    return values


def _between(first: Number, last: Number, count: int, at: Callable[[float], float]) -> Sequence[Number]:
    ends = {0: float(first), count - 1: float(last)}
    return Spaced(count, lambda i: ends[i] if i in ends else significant(at(i / (count - 1))))
