"""A sweep: the combinations of its axes and cases, counted without being made and made one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, filterfalse, product, repeat
from math import prod
from operator import itemgetter
from typing import Any

from deborgen_shared.jobfile.axes import significant
from deborgen_shared.jobfile.template import Scalar

Combination = tuple[Scalar, ...]
_NOTHING: Any = object()


class Sweep:
    """This job, once per combination. Cases vary slowest; then the grid's axes as written, the last one fastest."""

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
        """Combinations before `exclude`, without making any."""
        return max(1, len(self._rows)) * prod(map(len, self._axes))

    @cached_property
    def count(self) -> int:
        """Combinations after `exclude`."""
        return sum(1 for _ in self._combinations()) if self._excluded else self.size

    def params(self) -> Iterator[dict[str, Scalar]]:
        """The parameters of each job in turn, made as they are asked for."""
        return map(dict, map(zip, repeat(self.names), self._combinations()))

    def values(self, name: str) -> Sequence[Scalar]:
        """All values that a parameter takes."""
        place = self.names.index(name)
        cases = len(self.names) - len(self._axes)
        return [row[place] for row in self._rows] if place < cases else self._axes[place - cases]

    def _combinations(self) -> Iterator[Combination]:
        found: Iterator[Combination]
        if self._rows:
            found = chain.from_iterable(map(row.__add__, product(*self._axes)) for row in self._rows)
        else:
            found = product(*self._axes)
        for pick, unwanted in self._excluded:
            found = filterfalse(_member(pick, unwanted), found)
        return found

    @cached_property
    def _excluded(self) -> list[tuple[Callable[[Any], Any], set[Any]]]:
        """The `exclude` rows as sets to look up in, one per combination of names; values as the axes have them."""
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
    """What makes two values the same: `true` is not 1, and floats are compared to 12 significant digits."""
    return isinstance(value, bool), significant(value) if isinstance(value, float) else value


def _member(pick: Callable[[Any], Any], unwanted: set[Any]) -> Callable[[Combination], bool]:
    return lambda combination: pick(combination) in unwanted
