"""The live view of a run: a bar with counts and the estimated time left, then its running and failed jobs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deborgen import output
from deborgen.runs import Job, Run, if_reachable
from deborgen.waiting import last_lines, next_command
from deborgen_shared.states import State

#: At most this many running and this many failed jobs are listed under the bar.
SHOWN = 6

#: Shortest time between two updates of the picture.
FRAME_SECONDS = 0.25
#: Longest time between two updates while jobs run.
LOOK_SECONDS = 2.0


@dataclass
class Picture:
    """The state of a run at one moment."""

    run: Run
    running: list[Job] = field(default_factory=list)
    failed: list[Job] = field(default_factory=list)
    trouble: str = ""
    tail: list[str] = field(default_factory=list)
    tail_of: str = ""

    def look(self) -> None:
        self.run.refresh()
        counts = self.run.counts
        self.running = list(self.run.jobs(State.RUNNING, SHOWN)) if counts[State.RUNNING] else []
        self.failed = list(self.run.jobs(State.FAILED, SHOWN)) if counts[State.FAILED] else []
        if self.failed and self.tail_of != self.failed[0].id:
            self.tail_of = self.failed[0].id
            self.tail = last_lines(self.failed[0])


def time_left(elapsed: float, ended: int, still_open: int) -> float | None:
    """Estimated seconds until all jobs have ended, at the pace since the view was opened; None if unknown."""
    return elapsed / ended * still_open if ended > 0 and still_open > 0 else None


def watch(run: Run) -> None:
    """Draw the run until it ends."""
    picture = Picture(run)
    began, done_before = time.monotonic(), run.done

    def trouble(sentence: str) -> None:
        picture.trouble = sentence

    with run.changes(trouble) as changes, Live(console=output.console(stderr=True), auto_refresh=False) as live:
        while True:
            if if_reachable(picture.look, trouble):
                picture.trouble = ""
            left = time_left(time.monotonic() - began, run.done - done_before, run.total - run.done)
            live.update(draw(picture, left), refresh=True)
            if run.ended:
                return
            changes.wait(LOOK_SECONDS if run.counts[State.RUNNING] else None, FRAME_SECONDS)


def draw(picture: Picture, left: float | None) -> RenderableType:
    """The picture as lines that fit the terminal."""
    run, counts = picture.run, picture.run.counts
    head = Table.grid(padding=(0, 1))
    head.add_row(
        Text(f"run {run.id}", "bold"),
        Text(output.one_line(run.name)[:30]),
        ProgressBar(total=max(run.total, 1), completed=picture.run.done, width=30),
        Text(f"{picture.run.done:,}/{run.total:,}"),
        Text(_eta(picture, left), "dim"),
    )
    tally = Text("  ")
    for state in (State.SUCCEEDED, State.RUNNING, State.QUEUED, State.FAILED, State.CANCELED):
        if counts[state]:
            tally.append(f"{counts[state]:,} {state}  ", output.STYLES[state])
    lines: list[RenderableType] = [head, tally]
    for state, jobs in ((State.RUNNING, picture.running), (State.FAILED, picture.failed)):
        lines += [_line(job, state) for job in jobs]
        if counts[state] > SHOWN:
            lines.append(Text(f"  … and {counts[state] - SHOWN:,} more {state}", "dim"))
    if picture.tail:
        lines.append(Text(f"  the last lines of the log of {picture.tail_of}:", "dim"))
        lines += [Text(f"    {line}", no_wrap=True, overflow="ellipsis") for line in picture.tail]
    if picture.failed:
        lines.append(Text(f"  {next_command(picture.failed)}", "dim"))
    if picture.trouble:
        lines.append(Text(f"  {picture.trouble}; trying again", "yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def _eta(picture: Picture, left: float | None) -> str:
    run = picture.run.data
    if picture.run.ended and run.finished_at:
        return f"{picture.run.state} after {output.seconds(run.finished_at - run.created_at)}"
    if left is None:
        return ""
    return f"about {output.seconds(left) if left >= 10 else f'{max(1, round(left))}s'} left"


def _line(job: Job, state: str) -> RenderableType:
    data = job.data
    text = Text("  ", no_wrap=True, overflow="ellipsis")
    text.append("✗ " if state == State.FAILED else "▸ ", output.STYLES[state])
    text.append(data.id, "bold")
    if data.step:
        text.append(f" {output.one_line(data.step)}")
    if data.params:
        text.append(" " + output.one_line(output.cell(data.params)))
    if state == State.RUNNING:
        if data.progress is not None:
            text.append(f"  {data.progress:.0%}", "cyan")
        if data.message:
            text.append(f" {output.one_line(data.message)}", "cyan")
        since = datetime.now(UTC) - data.started_at if data.started_at else 0
        text.append(f"  {output.seconds(since)} on {data.worker or '?'}", "dim")
    else:
        text.append(f"  {output.one_line(data.reason)}", "red")
    return text
