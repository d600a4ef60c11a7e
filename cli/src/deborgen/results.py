"""The results table of a run: one row per job, with its parameters, its results and how it ended."""

from __future__ import annotations

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
    """Rows as plain dicts: `job`, `step` (if there are steps), `state`, parameters, results, `seconds`, `worker`.

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
        self._known(key)
        having = [row for row in self if row.get(key) is not None]
        without = [row for row in self if row.get(key) is None]
        return Results([*sorted(having, key=lambda row: _order(row[key]), reverse=reverse), *without], self.columns)

    def best(self, key: str, which: Literal["min", "max"] = "min") -> Row | None:
        """The row with the smallest or largest number in a column, or None if no row has a number."""
        self._known(key)
        having = [row for row in self if isinstance(row.get(key), int | float) and row[key] == row[key]]
        choose = min if which == "min" else max
        return choose(having, key=lambda row: float(row[key])) if having else None

    def to_csv(self) -> str:
        """The same CSV as from the API."""
        return "".join(csv_of(self.columns, self))

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with the same columns. Needs pandas, which deborgen does not install."""
        try:
            import pandas
        except ImportError:
            raise DeborgenError("to_pandas() needs pandas", "pip install pandas") from None
        return pandas.DataFrame(list(self), columns=self.columns)

    def _known(self, key: str) -> None:
        if key not in self.columns:
            hint = did_you_mean(key, self.columns, f"the columns are: {', '.join(self.columns)}")
            raise WrongUsage(f"the results have no column {key!r}", hint)


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))
