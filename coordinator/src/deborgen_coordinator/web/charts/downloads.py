"""The numbers of a chart as CSV."""

from __future__ import annotations

from collections.abc import Iterator

from deborgen_shared.results_table import csv_of

from .svg import Numbers


def csv(table: Numbers) -> Iterator[str]:
    """The table as CSV, in pieces of many lines."""
    places = [str(at) for at in range(len(table.columns))]
    lines = csv_of(places, (dict(zip(places, row, strict=True)) for row in table.rows))
    first = True
    for piece in lines:
        yield _with_names(piece, table.columns) if first else piece
        first = False


def _with_names(piece: str, names: list[str]) -> str:
    """Two columns may share a name, so the names replace the places in the first line."""
    head = next(csv_of(names, ()))
    return head + piece.partition("\n")[2]
