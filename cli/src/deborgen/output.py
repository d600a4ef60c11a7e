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
from typing import TYPE_CHECKING, Any

from deborgen_shared.states import Availability, State, WorkerState

if TYPE_CHECKING:
    from rich.console import Console

STYLES: dict[str, str] = {
    State.QUEUED: "dim",
    State.RUNNING: "cyan",
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

#: Control characters and those that change the direction of text, each with a visible replacement.
_INERT: dict[int, str] = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_INERT[0x7F] = "␡"
_INERT |= {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
_INERT |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)}
_ONE_LINE: dict[int, str] = {**_INERT, 0x0A: "↵", 0x09: " "}
_TSV: dict[int, str] = {0x5C: "\\\\", 0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}


def inert(text: str) -> str:
    """The text with every control character made visible, except for newlines and tabs."""
    return text.replace("\r\n", "\n").translate(_INERT)


def one_line(text: str) -> str:
    """The text on one line, with control characters made visible: for names, reasons and messages."""
    return text.translate(_ONE_LINE)


class InertStream:
    """Turns the bytes of a log, chunk by chunk, into text that is safe to show on a terminal."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Progress bars redraw their line with a lone carriage return: put each update on its own line.
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)

    def feed(self, data: bytes, final: bool = False) -> str:
        return inert(self._decoder.decode(data, final))


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
    sys.stderr.write(inert(sentence) + "\n")
    sys.stderr.flush()


def hint(sentence: str) -> None:
    """Print what to do next to stderr, dimmed if possible."""
    text = inert(sentence)
    dimmed = sys.stderr.isatty() and not _plain()
    sys.stderr.write(f"\x1b[2m{text}\x1b[0m\n" if dimmed else f"{text}\n")
    sys.stderr.flush()


def trouble(sentence: str) -> None:
    """Print a problem that is being retried, as a hint."""
    hint(f"{sentence}; trying again")


def write(text: str) -> None:
    """Print data to stdout, unchanged."""
    sys.stdout.write(text)
    sys.stdout.flush()


def write_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def json(noun: str, value: Any, *, indent: int = 2) -> None:
    """Print the versioned JSON of a command: an object with `version` and one noun; on one line with indent -1."""
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
) -> None:
    """Print rows: a table on a terminal, otherwise tab-separated. `shown` formats a column's values for the table."""
    if not on_terminal():
        write("\n".join(["\t".join(columns), *map(tsv, rows)]) + "\n")
        return
    from rich.table import Table
    from rich.text import Text

    picture = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        picture.add_column(
            name.upper().replace("_", " "),
            justify="right" if name in numeric else "left",
            overflow="ellipsis",
            no_wrap=True,
        )
    as_seen: list[Callable[[Any], Any]] = [(shown or {}).get(name, cell) for name in columns]
    for row in rows:
        texts = [cell(see(value)) for see, value in zip(as_seen, row, strict=True)]
        picture.add_row(*(Text(one_line(text), STYLES.get(text, "")) for text in texts))
    out = console()
    out.soft_wrap = False
    out.print(picture)


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
