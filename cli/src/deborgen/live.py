"""The live view of a run: a bar with counts and an estimate, what runs and what failed under it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deborgen import logs, output
from deborgen.errors import DeborgenError
from deborgen.pulse import Pulse
from deborgen.runs import Job, Run, is_terminal, patiently
from deborgen_shared.queries import EventsQuery
from deborgen_shared.states import TERMINAL, State

if TYPE_CHECKING:
    from rich.console import RenderableType

#: How many jobs are listed under the bar, of each kind.
SHOWN = 6

#: How often the picture is made anew at most, and how often the coordinator is asked while little happens.
FRAME_SECONDS = 0.25
LOOK_SECONDS = 2.0


@dataclass
class Picture:
    """What is known of a run at one moment."""

    run: Run
    running: list[Job] = field(default_factory=list)
    failed: list[Job] = field(default_factory=list)
    trouble: str = ""
    tail: list[str] = field(default_factory=list)
    tail_of: str = ""

    @property
    def done(self) -> int:
        counts = self.run.counts
        return sum(counts[state] for state in TERMINAL)

    @property
    def ended(self) -> bool:
        return is_terminal(self.run.state)

    def look(self) -> None:
        self.run.refresh()
        counts = self.run.counts
        self.running = list(self.run.jobs(State.RUNNING, SHOWN)) if counts[State.RUNNING] else []
        self.failed = list(self.run.jobs(State.FAILED, SHOWN)) if counts[State.FAILED] else []
        if self.failed and self.tail_of != self.failed[0].id:
            self.tail_of = self.failed[0].id
            self.tail = last_lines(self.failed[0])


class Estimate:
    """How long until all is done, by the pace since the watching began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None

    def left(self, done: int, total: int) -> float | None:
        now = self._clock()
        if self._first is None:
            self._first = (now, done)
        start, before = self._first
        if done <= before or done >= total:
            return None
        return (now - start) / (done - before) * (total - done)


def watch(run: Run) -> Run:
    """Show the run until it ends: live on a terminal, as plain lines otherwise. An interrupt goes through."""
    if output.progress_on_terminal():
        _watch_live(run)
    else:
        _watch_plain(run)
    return run


def _watch_live(run: Run) -> None:
    from rich.live import Live

    picture = Picture(run)
    estimate = Estimate()

    def trouble(sentence: str) -> None:
        picture.trouble = sentence

    with (
        run._connection.impatient(),
        Pulse(run._connection, EventsQuery(run=run.id), trouble) as pulse,
        Live(console=output.console(stderr=True), auto_refresh=False, transient=False) as live,
    ):
        while True:
            if patiently(picture.look, trouble):
                picture.trouble = ""
            live.update(draw(picture, estimate.left(picture.done, run.total)), refresh=True)
            if picture.ended:
                return
            pulse.wait(LOOK_SECONDS if run.counts[State.RUNNING] else None, FRAME_SECONDS)


def draw(picture: Picture, left: float | None) -> RenderableType:
    """The picture as lines that fit the terminal."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    run, counts = picture.run, picture.run.counts
    total = max(run.total, 1)
    head = Table.grid(padding=(0, 1))
    head.add_row(
        Text(f"run {run.id}", "bold"),
        Text(output.one_line(run.name)[:30]),
        ProgressBar(total=total, completed=picture.done, width=30),
        Text(f"{picture.done:,}/{run.total:,}"),
        Text(_eta(picture, left), "dim"),
    )
    tally = Text("  ")
    for state in (State.SUCCEEDED, State.RUNNING, State.QUEUED, State.FAILED, State.CANCELED):
        if counts[state]:
            tally.append(f"{counts[state]:,} {state}  ", output.STYLES[state])
    lines: list[RenderableType] = [head, tally]
    lines += [_line(job, State.RUNNING) for job in picture.running]
    lines += _more(counts[State.RUNNING], State.RUNNING)
    lines += [_line(job, State.FAILED) for job in picture.failed]
    lines += _more(counts[State.FAILED], State.FAILED)
    if picture.tail:
        lines.append(Text(f"  the last lines of {picture.tail_of}:", "dim"))
        lines += [Text(f"    {line}", no_wrap=True, overflow="ellipsis") for line in picture.tail]
    if picture.failed:
        lines.append(Text(f"  {next_command(picture.failed)}", "dim"))
    if picture.trouble:
        lines.append(Text(f"  {picture.trouble}; trying again", "yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def _more(count: int, state: str) -> list[RenderableType]:
    from rich.text import Text

    return [Text(f"  … and {count - SHOWN:,} more {state}", "dim")] if count > SHOWN else []


def _eta(picture: Picture, left: float | None) -> str:
    run = picture.run.data
    if picture.ended and run.finished_at:
        return f"{picture.run.state} after {output.seconds((run.finished_at - run.created_at).total_seconds())}"
    if left is None:
        return ""
    return f"about {output.seconds(left) if left >= 10 else f'{max(1, round(left))}s'} left"


def _line(job: Job, state: str) -> RenderableType:
    from rich.text import Text

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
        since = (datetime.now(UTC) - data.started_at).total_seconds() if data.started_at else 0
        text.append(f"  {output.seconds(since)} on {data.worker or '?'}", "dim")
    else:
        text.append(f"  {output.one_line(data.reason)}", "red")
    return text


def last_lines(job: Job) -> list[str]:
    """The end of a job's log, fit for a terminal; nothing when it cannot be had."""
    if not job.data.attempts:
        return []
    try:
        return [output.one_line(line) for line in logs.tail(job._connection, job.id)]
    except DeborgenError:
        return []


def next_command(failed: list[Job]) -> str:
    """What to type when something failed."""
    run = failed[0].data.run
    return f"next: deborgen logs {failed[0].id}    deborgen why {failed[0].id}    deborgen retry {run} --failed"


def _watch_plain(run: Run) -> None:
    """A line when something changed, at most one a second, and one for each job that failed."""
    told: set[str] = set()
    before = ""
    with run._connection.impatient(), Pulse(run._connection, EventsQuery(run=run.id)) as pulse:
        while True:
            patiently(run.refresh, lambda sentence: output.hint(f"{sentence}; trying again"))
            counts = run.counts
            if counts[State.FAILED] > len(told):
                for job in run.jobs(State.FAILED):
                    if job.id not in told:
                        told.add(job.id)
                        output.say(f"{describe(job)} failed: {job.reason}")
                        if len(told) == 1:
                            for line in last_lines(job):
                                output.say(f"    {line}")
                            output.hint(f"  {next_command([job])}")
            done = sum(counts[state] for state in TERMINAL)
            tally = ", ".join(f"{counts[state]:,} {state}" for state in counts if counts[state])
            line = f"run {run.id}: {done:,}/{run.total:,} done ({tally})"
            if line != before:
                output.say(line)
            before = line
            if is_terminal(run.state):
                return
            pulse.wait(None, 1.0)


def describe(job: Job) -> str:
    """`42.7 (seed=3)`"""
    named = " ".join(filter(None, [job.data.step, output.cell(job.data.params)]))
    return f"{job.id} ({output.one_line(named)})" if named else job.id
