"""A sweep: the combinations of its axes and cases. They are counted without being generated, and generated lazily.

An axis knows its length without generating its values, so an axis that is too long costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, filterfalse, product, repeat
from math import prod
from operator import itemgetter
from typing import Any

from deborgen_shared.jobfile.template import Scalar

Combination = tuple[Scalar, ...]
Number = int | float
#: Stands for a value of `exclude` that no axis has.
_NOTHING: Any = object()
#: Roughly how many bytes a parameter takes as text besides its name and value; and a number in a generated axis.
_BYTES_BETWEEN, _BYTES_PER_NUMBER = 6, 16
#: A logarithmic axis of integers cannot have more values than this within 64 bits.
_LONGEST_OF_INTEGERS = 64


class Sweep:
    """All combinations of parameters. Cases vary slowest. The axes keep their order, and the last varies fastest."""

    def __init__(
        self,
        grid: Mapping[str, Sequence[Scalar]],
        cases: Sequence[Mapping[str, Scalar]] = (),
        exclude: Sequence[Mapping[str, Scalar]] = (),
    ) -> None:
        case_names = tuple(cases[0]) if cases else ()
        self.names: tuple[str, ...] = (*case_names, *grid)
        self._axes = tuple(grid.values())
        self._rows: Sequence[Combination] = [tuple(row[name] for name in case_names) for row in cases]
        self.exclude = exclude

    @property
    def size(self) -> int:
        """The number of combinations before `exclude`. None of them is generated."""
        return max(1, len(self._rows)) * prod(map(len, self._axes))

    @cached_property
    def count(self) -> int:
        """The number of combinations after `exclude`."""
        return sum(1 for _ in self._combinations()) if self._excluded else self.size

    @property
    def text_size(self) -> int:
        """Roughly how many bytes the parameters of all combinations take as text. None of them is generated."""
        size = self.size
        return sum(
            size * (len(name) + _BYTES_BETWEEN) + _text_size(values) * (size // max(1, len(values)))
            for name in self.names
            for values in [self.values(name)]
        )

    def params(self) -> Iterator[dict[str, Scalar]]:
        """The parameters of each job in turn, generated lazily."""
        return map(dict, map(zip, repeat(self.names), self._combinations()))

    def values(self, name: str) -> Sequence[Scalar]:
        """All values that a parameter takes."""
        place = self.names.index(name)
        cases = len(self.names) - len(self._axes)
        return [row[place] for row in self._rows] if place < cases else self._axes[place - cases]

    def idle_excludes(self) -> list[Mapping[str, Scalar]]:
        """The rows of `exclude` that match no combination."""
        known = {name: set(map(identity, self.values(name))) for name in {name for row in self.exclude for name in row}}
        cases = self.names[: len(self.names) - len(self._axes)]
        return [row for row in self.exclude if not self._matches_any(row, known, cases)]

    def _matches_any(
        self, row: Mapping[str, Scalar], known: Mapping[str, set[tuple[bool, Scalar]]], cases: tuple[str, ...]
    ) -> bool:
        if any(identity(value) not in known[name] for name, value in row.items()):
            return False
        wanted = [(place, identity(row[name])) for place, name in enumerate(cases) if name in row]
        # Axes are crossed with everything, but the values of a case belong together.
        return len(wanted) < 2 or any(all(identity(c[place]) == v for place, v in wanted) for c in self._rows)

    def _combinations(self) -> Iterator[Combination]:
        found: Iterator[Combination]
        if self._rows:
            found = chain.from_iterable(map(row.__add__, product(*self._axes)) for row in self._rows)
        else:
            found = product(*self._axes)
        for pick, unwanted in self._excluded:
            found = filterfalse(_is_unwanted(pick, unwanted), found)
        return found

    @cached_property
    def _excluded(self) -> list[tuple[Callable[[Any], Any], set[Any]]]:
        """The `exclude` rows as lookup sets, one per combination of names, with the values as the axes spell them."""
        lookup = {
            name: {identity(value): value for value in self.values(name)}
            for name in {name for row in self.exclude for name in row}
        }
        groups: dict[tuple[int, ...], set[Any]] = {}
        for row in self.exclude:
            values = {name: lookup[name].get(identity(value), _NOTHING) for name, value in row.items()}
            if _NOTHING in values.values():
                continue
            places = tuple(place for place, name in enumerate(self.names) if name in values)
            picked = tuple(values[self.names[place]] for place in places)
            groups.setdefault(places, set()).add(picked if len(picked) > 1 else picked[0])
        return [(itemgetter(*places), unwanted) for places, unwanted in groups.items()]


def identity(value: Scalar) -> tuple[bool, Scalar]:
    """A key that is equal for equal values: `true` is not 1, and floats are compared to 12 significant digits."""
    return isinstance(value, bool), significant(value) if isinstance(value, float) else value


def _text_size(values: Sequence[Scalar]) -> int:
    if isinstance(values, Spaced | range):
        return _BYTES_PER_NUMBER * len(values)
    return sum(len(value.encode()) if isinstance(value, str) else len(str(value)) for value in values)


def _is_unwanted(pick: Callable[[Any], Any], unwanted: set[Any]) -> Callable[[Combination], bool]:
    return lambda combination: pick(combination) in unwanted


def significant(value: float) -> float:
    """The float rounded to 12 significant digits, so that a generated value equals the one that a person writes."""
    return float(f"{value:.12g}")


class Spaced(Sequence[Number]):
    """A sequence of numbers, each computed from its index."""

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


def stepped_count(first: Number, last: Number, step: Number) -> int:
    """How many values `stepped` returns; zero if the step leads away from the end."""
    steps = (last - first) / step
    if steps < 0:
        return 0
    return int(min(steps, 1e18) + 1e-9) + 1  # 1e-9: a rounding error must not lose the last value


def stepped(first: Number, last: Number, step: Number) -> Sequence[Number]:
    """From the first towards the last by a step that is not an integer."""
    return Spaced(stepped_count(first, last, step), lambda i: significant(first + i * step))


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
