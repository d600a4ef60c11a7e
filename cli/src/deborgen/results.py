"""The results table of a run: one row per job, with its parameters, its results and how it ended."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from deborgen.errors import DeborgenError, WrongUsage
from deborgen_shared.jobfile.problems import did_you_mean
from deborgen_shared.messages import ResultRow
from deborgen_shared.results_table import Columns, csv_of

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]


class Results(list[Row]):
    """Rows as plain dicts: `job`, `retry_of` and `step` (if a job has one), `state`, parameters, results, `seconds`,
    `worker`.

    A result with the same name as a parameter or one of these columns is called `result.NAME`.
    """

    def __init__(self, rows: Iterable[Row] = (), columns: Iterable[str] = ()) -> None:
        super().__init__(rows)
        self.columns = list(columns) or list(dict.fromkeys(key for row in self for key in row))

    @classmethod
    def of(cls, rows: Iterable[ResultRow]) -> Results:
        found = list(rows)
        columns = Columns.of(found)
        return cls(map(columns.cells, found), columns.names)

    def sorted_by(self, key: str, *, reverse: bool = False) -> Results:
        """The same rows, sorted by a column: numbers before text, rows without a value last."""
        self._require_column(key)
        having = [row for row in self if _has(row, key)]
        without = [row for row in self if not _has(row, key)]
        return Results([*sorted(having, key=lambda row: _order(row[key]), reverse=reverse), *without], self.columns)

    def best(self, key: str, which: Literal["min", "max"] = "min") -> Row | None:
        """The row with the smallest or largest number in a column, or None if no row has a number."""
        self._require_column(key)
        having = [row for row in self if isinstance(row.get(key), int | float) and _has(row, key)]
        choose = min if which == "min" else max
        return choose(having, key=lambda row: float(row[key])) if having else None

    def where(self, key: str, value: str) -> Results:
        """The rows that have this value in a column. A number may be written in any way: `1`, `1.0` or `1e0`."""
        self._require_column(key)
        return Results([row for row in self if _equals_typed(row.get(key), value)], self.columns)

    def only(self, columns: Iterable[str]) -> Results:
        """The same rows with only these columns, in this order."""
        wanted = list(dict.fromkeys(columns))
        for name in wanted:
            self._require_column(name)
        return Results([{name: row.get(name) for name in wanted} for row in self], wanted)

    def first(self, count: int) -> Results:
        """The first rows."""
        return Results(self[:count], self.columns)

    def to_csv(self) -> str:
        """The table as CSV, byte for byte as the API gives it."""
        return "".join(csv_of(self.columns, self))

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with the same columns. Needs pandas, which deborgen does not install."""
        try:
            import pandas
        except ImportError:
            raise DeborgenError("to_pandas() needs pandas", "pip install pandas") from None
        return pandas.DataFrame(list(self), columns=self.columns)

    def _require_column(self, key: str) -> None:
        if key not in self.columns:
            hint = did_you_mean(key, self.columns, f"the columns are: {', '.join(self.columns)}")
            raise WrongUsage(f"the results have no column {key!r}", hint)


def _equals_typed(value: Any, text: str) -> bool:
    """Whether a person who types this text means this value: `true`, `1e0` for 1, an empty text for no value."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: ""}[value] == text
    if isinstance(value, int | float):
        with contextlib.suppress(ValueError):
            number = float(text)
            return value == number or (_is_nan(value) and math.isnan(number))
    return str(value) == text


def _has(row: Row, key: str) -> bool:
    """Whether the row has a value in this column. NaN is not a value: it has no place in an order."""
    value = row.get(key)
    return value is not None and not _is_nan(value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))
