"""How a table fits a terminal: which columns are shown, how wide each is, and which rows of a long table are shown.

Ids, states and numbers are never shortened. Text loses its middle first; then whole columns are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, takewhile

#: The number of spaces between two columns.
GAP = 2
#: Text is not shortened to less than this many characters.
SHORTEST_TEXT = 12
#: A table with more rows than this is shown as its first and its last rows.
MOST_ROWS = 200
FIRST_ROWS = 100
LAST_ROWS = 20


def fit(natural: Mapping[str, int], room: int, text: Collection[str], spare: Sequence[str] = ()) -> dict[str, int]:
    """The width of each column that is shown, by name, so that all of them fit into `room` characters.

    `natural` has the columns in order, each with the width that shows all its values in full. Columns in `text` may be
    shortened. If that is not enough, the columns in `spare` are left out, in their order, then the others, from the
    right. The first column is always shown.
    """
    widths = dict(natural)
    if not widths:
        return {}
    first = next(iter(widths))
    rest = [name for name in reversed(widths) if name not in spare]
    # Try with all columns first (None), then leave out one more column in each round.
    for name in (None, *spare, *rest):
        if name == first:
            break
        if name is not None:
            widths.pop(name, None)
        excess = _total(widths) - room
        shrinkable = sum(max(0, widths[each] - SHORTEST_TEXT) for each in widths if each in text)
        if excess <= shrinkable:
            return _shrink(widths, excess, text)
    return {first: min(natural[first], room) if first in text else natural[first]}


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _shrink(widths: dict[str, int], excess: int, text: Collection[str]) -> dict[str, int]:
    """Take `excess` characters away from the columns of text, always from the widest ones."""
    while excess > 0:
        columns = sorted((each for each in widths if each in text), key=lambda each: widths[each], reverse=True)
        widest, floor = widths[columns[0]], SHORTEST_TEXT
        as_wide = [each for each in columns if widths[each] == widest]
        if len(as_wide) < len(columns):
            # Stop at the width of the next column: from there on, it has to shrink too.
            floor = max(floor, widths[columns[len(as_wide)]])
        step = max(1, min(widest - floor, excess // len(as_wide)))
        for each in as_wide[: max(1, excess // step)]:
            widths[each] -= step
            excess -= step
    return widths


def shortened(text: str, width: int) -> str:
    """The text in at most `width` cells. A longer one loses its middle: of many parameters, the last varies most."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text

    def fitting(letters: str, room: int) -> int:
        return sum(1 for _ in takewhile(lambda used: used <= room, accumulate(map(cell_len, letters))))

    tail = fitting(text[::-1], (width - 1) // 2)
    return f"{text[: fitting(text, width - 1 - (width - 1) // 2)]}…{text[len(text) - tail :]}"


def left_out(rows: int) -> range:
    """The rows of a long table that a terminal does not show."""
    return range(FIRST_ROWS, rows - LAST_ROWS) if rows > MOST_ROWS else range(0)
