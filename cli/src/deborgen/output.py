"""The output of all commands: data on stdout, progress and hints on stderr.

On a terminal, a list is a table, shortened to fit; in a pipe, it is tab-separated, with a header and full values.
Text from outside (a name, a label, a log) can never control the terminal.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from deborgen import layout
from deborgen_shared.states import Availability, State, WorkerState
from deborgen_shared.terminal import inert, inert_lines

if TYPE_CHECKING:
    from rich.console import Console

STYLES: dict[str, str] = {
    State.QUEUED: "dim",
    State.RUNNING: "cyan",
    "assigned": "dim",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELED: "yellow",
    **dict.fromkeys(Availability, "yellow"),
    Availability.FREE: "green",
    Availability.BUSY: "cyan",
    Availability.OFFLINE: "red",
    WorkerState.OPEN: "green",
    WorkerState.RESTING: "yellow",
    WorkerState.LEFT: "dim",
}

#: No progress bar is drawn for fewer bytes than this: the transfer is over too soon.
WORTH_A_BAR = 1 << 20

_TSV: dict[int, str] = {0x5C: "\\\\", 0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}


class InertStream:
    """Turns the bytes of a log, chunk by chunk, into text that is safe to show on a terminal."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Progress bars redraw their line with a lone carriage return: put each update on its own line.
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)

    def feed(self, data: bytes, final: bool = False) -> str:
        return inert_lines(self._decoder.decode(data, final))


def on_terminal() -> bool:
    return sys.stdout.isatty()


def progress_on_terminal() -> bool:
    """Whether a live view can be drawn: stderr is a terminal, and not a dumb one."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"


def _plain() -> bool:
    # https://no-color.org: any value that is not empty.
    return bool(os.environ.get("NO_COLOR"))


def console(stderr: bool = False) -> Console:
    """A console that prints text unchanged: no markup, no emoji codes, no highlighting of numbers."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, no_color=_plain(), soft_wrap=True)


@contextmanager
def bar(verb: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr for a transfer. Yields a function to call with the number of bytes transferred.

    Nothing is drawn if stderr is not a terminal.
    """
    if total < WORTH_A_BAR or not progress_on_terminal():
        yield lambda count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(verb), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda count: progress.advance(task, count)


def say(sentence: str = "") -> None:
    """Print a sentence for the person to stderr."""
    sys.stderr.write(inert_lines(sentence) + "\n")
    sys.stderr.flush()


def hint(sentence: str) -> None:
    """Print to stderr what to do next, dimmed if possible."""
    text = inert_lines(sentence)
    dimmed = sys.stderr.isatty() and not _plain()
    sys.stderr.write(f"\x1b[2m{text}\x1b[0m\n" if dimmed else f"{text}\n")
    sys.stderr.flush()


def trouble(sentence: str) -> None:
    """Print a problem that is being retried, as a hint."""
    hint(f"{sentence}; trying again")


def write(text: str) -> None:
    """Print data to stdout: unchanged in a pipe, inert on a terminal."""
    sys.stdout.write(inert_lines(text) if on_terminal() else text)
    sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def json(noun: str, value: Any, *, indent: int = 2) -> None:
    """Print the versioned JSON of a command: an object with `version` and the value, whose key is `noun`.

    It is printed on one line if `indent` is -1.
    """
    import msgspec

    encoded = msgspec.json.encode({"version": 1, noun: value})
    write(msgspec.json.format(encoded, indent=indent).decode() + "\n")


def cell(value: Any) -> str:
    """A value as people write it: text without quotes, `true` instead of `True`, an empty string for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.3f}"
    if isinstance(value, Mapping):
        return " ".join(f"{k}={cell(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ",".join(cell(v) for v in value)
    return str(value)


def tsv(row: Sequence[Any]) -> str:
    """One tab-separated line. Tabs and newlines within a value are written as `\\t` and `\\n`."""
    return "\t".join(cell(value).translate(_TSV) for value in row)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    shown: Mapping[str, Callable[[Any], Any]] | None = None,
    numeric: Collection[str] = (),
    text: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print rows: a table on a terminal, otherwise tab-separated. `shown` formats a column's values for the table.

    To fit a terminal, only the columns in `text` are shortened, and the columns in `spare` are left out first. A
    terminal does not show columns without a value.
    """
    if not on_terminal():
        write("\n".join(["\t".join(columns), *map(tsv, rows)]) + "\n")
        return
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    all_rows = list(rows)
    skipped = layout.left_out(len(all_rows))
    visible = [*all_rows[: skipped.start], *all_rows[skipped.stop :]] if skipped else all_rows
    formats: list[Callable[[Any], Any]] = [(shown or {}).get(name, cell) for name in columns]
    lines = [[inert(cell(form(value))) for form, value in zip(formats, row, strict=True)] for row in visible]
    titles = [inert(name.upper().replace("_", " ")) for name in columns]
    natural = {  # the width of each column if nothing is shortened
        name: max(map(cell_len, [title, *(line[place] for line in lines)]))
        for place, (name, title) in enumerate(zip(columns, titles, strict=True))
        if not lines or any(line[place] for line in lines)
    }
    out = console()
    widths = layout.fit(natural, out.width, text, spare)
    picture = Table(box=None, pad_edge=False, header_style="bold", padding=(0, layout.GAP, 0, 0))
    places = [place for place, name in enumerate(columns) if name in widths]
    for place in places:
        name = columns[place]
        side: Literal["left", "right"] = "right" if name in numeric else "left"
        picture.add_column(titles[place], justify=side, no_wrap=True, width=widths[name])
    for number, line in enumerate(lines):
        if skipped and number == skipped.start:
            picture.add_row(*("…" for _ in places))
        picture.add_row(
            *(
                Text(layout.shortened(line[place], widths[columns[place]]), STYLES.get(line[place], ""))
                for place in places
            )
        )
    out.soft_wrap = True
    out.print(picture, width=max(out.width, sum(widths.values()) + layout.GAP * len(widths)), crop=False)
    if skipped:
        hint(f"{counted(len(skipped), 'row')} in the middle left out: a pipe shows all of them, for example | less -S")
    if lines and (missing := [name for name in natural if name not in widths]):
        hint(f"left out to fit this terminal: {', '.join(missing)}; a pipe shows every column")


def age(then: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in one or two units."""
    if then is None:
        return "never"
    return f"{seconds((now or datetime.now(UTC)) - then)} ago"


def seconds(value: float | timedelta | None) -> str:
    """A duration for people: 0.4s, 12s, 3m 20s, 2h 5m, 4d 1h."""
    if value is None:
        return ""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value < 10:
        return f"{max(value, 0):.1f}s"
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def size(value: float | None) -> str:
    """A number of bytes for people: 512 B, 1.5 KiB, 8 GiB."""
    if value is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}".replace(".0 ", " ")
        value /= 1024
    raise AssertionError


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `10,000 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
