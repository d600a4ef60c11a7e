"""A progress bar on stderr for bytes that go up or down; nothing at all where stderr is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deborgen import output

#: Less than this is over before the bar is drawn.
WORTH_A_BAR = 1 << 20


@contextmanager
def bar(verb: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function to be told of every byte."""
    if total < WORTH_A_BAR or not output.progress_on_terminal():
        yield lambda count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(verb), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda count: progress.advance(task, count)
