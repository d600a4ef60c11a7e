"""The results table of a run, with one row per job. The API and the command both use it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deborgen_shared.messages import ResultRow

#: Columns of every table, before the parameters and after the results. The optional ones appear only if a job has one.
BEFORE = ("job", "retry_of", "step", "state", "round", "verified")
OPTIONAL = ("retry_of", "step", "round", "verified")
AFTER = ("seconds", "worker")
#: Columns whose smallest value is the best.
SMALLER_IS_BETTER = frozenset({"error", "err", "loss", "cost", "rmse", "mse", "mae", "residual"})
#: Number of CSV lines per piece.
BATCH = 500
#: The numbers that JSON has no word for, by the text that stands for each of them.
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class Columns:
    """The columns of a table. A parameter or result whose name is taken gets a prefix: `param.NAME`, `result.NAME`."""

    names: list[str]
    params: Mapping[str, str]
    results: Mapping[str, str]

    @classmethod
    def of(cls, rows: Iterable[ResultRow]) -> Columns:
        """The columns that these rows need, in the order in which they first appear."""
        params: dict[str, None] = {}
        results: dict[str, None] = {}
        optional: set[str] = set()
        for row in rows:
            optional.update(name for name in OPTIONAL if getattr(row, name) is not None)
            params.update(dict.fromkeys(row.params))
            results.update(dict.fromkeys(row.result or ()))
        # Tables without loops had columns called `round` and `verified` before there were loops.
        fixed = {*BEFORE, *AFTER} - ({"round", "verified"} - optional)
        param_columns = {name: f"param.{name}" if name in fixed else name for name in params}
        result_columns = {name: f"result.{name}" if name in fixed or name in params else name for name in results}
        before = [name for name in BEFORE if name not in OPTIONAL or name in optional]
        return cls([*before, *param_columns.values(), *result_columns.values(), *AFTER], param_columns, result_columns)

    def cells(self, row: ResultRow) -> dict[str, Any]:
        """The values of one row by column; None in a column for which the job has no value."""
        line: dict[str, Any] = dict.fromkeys(self.names)
        for name in (*BEFORE, *AFTER):
            if name in line:
                line[name] = getattr(row, name)
        line.update((self.params[name], value) for name, value in row.params.items())
        line.update((self.results[name], from_wire(value)) for name, value in (row.result or {}).items())
        return line


def from_wire(value: Any) -> Any:
    """A value of a result, with a number instead of the text that stands for it on the wire."""
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def to_wire(value: Any) -> Any:
    """The opposite of `from_wire`: JSON has no word for NaN and the infinities."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def csv_of(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The table as CSV, in pieces of many lines. Values are not rounded; lists and objects are written as JSON.
    NaN and the infinities are empty cells.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(names)
    for number, row in enumerate(rows, 1):
        writer.writerow([_cell(row.get(name)) for name in names])
        if number % BATCH == 0:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list | Mapping) else value
