"""The results table of a run, with one row per job. The API and the command both use it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deborgen_shared.messages import ResultRow

#: Columns of every table, before the parameters and after the results. `step` appears only if a job has one.
BEFORE = ("job", "step", "state")
AFTER = ("seconds", "worker")
#: Number of CSV lines per piece.
BATCH = 500


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
        steps = False
        for row in rows:
            steps = steps or bool(row.step)
            params.update(dict.fromkeys(row.params))
            results.update(dict.fromkeys(row.result or ()))
        fixed = {*BEFORE, *AFTER}
        shown = {name: f"param.{name}" if name in fixed else name for name in params}
        found = {name: f"result.{name}" if name in fixed or name in params else name for name in results}
        before = [name for name in BEFORE if name != "step" or steps]
        return cls([*before, *shown.values(), *found.values(), *AFTER], shown, found)

    def cells(self, row: ResultRow) -> dict[str, Any]:
        """One row, by column; None where the job has nothing in it."""
        line: dict[str, Any] = dict.fromkeys(self.names)
        for name in (*BEFORE, *AFTER):
            if name in line:
                line[name] = getattr(row, name)
        line.update((self.params[name], value) for name, value in row.params.items())
        line.update((self.results[name], value) for name, value in (row.result or {}).items())
        return line


def csv_of(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The table as CSV, in pieces of many lines. Values are not rounded; lists and objects are written as JSON."""
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
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list | Mapping) else value
