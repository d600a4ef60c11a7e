"""The live view of a run: a bar with counts and the estimated time left, then its running and failed jobs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deborgen import groups, layout, output
from deborgen.runs import ASSIGNED, Job, Run, if_reachable
from deborgen.waiting import last_lines, next_commands, stuck
from deborgen_shared.messages import RunOverview
from deborgen_shared.states import State
from deborgen_shared.terminal import inert

#: At most this many running and this many failed jobs are listed under the bar.
SHOWN = 6

#: Shortest time between two updates of the picture.
FRAME_SECONDS = 0.25
#: Longest time between two updates while jobs run.
LOOK_SECONDS = 1.0
#: Shortest time between two requests for the overview, for which the coordinator reads all jobs of the run.
OVERVIEW_SECONDS = 2.0


@dataclass
class Picture:
    """The state of a run at one moment."""

    run: Run
    running: list[Job] = field(default_factory=list)
    failed: list[Job] = field(default_factory=list)
    overview: RunOverview | None = None
    overview_at: float = 0.0
    stuck: str = ""
    trouble: str = ""
    tail: list[str] = field(default_factory=list)
    tail_of: str = ""

    def look(self) -> None:
        """Ask the coordinator for everything that is shown. The overview may be a little older."""
        self.run.refresh()
        counts = self.run.counts
        self.running = list(self.run.jobs(State.RUNNING, SHOWN)) if counts[State.RUNNING] else []
        self.failed = list(self.run.jobs(State.FAILED, SHOWN)) if counts[State.FAILED] else []
        now = time.monotonic()
        if self.overview is None or self.run.ended or now - self.overview_at >= OVERVIEW_SECONDS:
            self.overview, self.overview_at = self.run.overview(), now
            self.stuck = stuck(self.run, self.overview)
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

    def show_trouble(sentence: str) -> None:
        picture.trouble = sentence

    console = output.console(stderr=True)
    console.soft_wrap = False  # a line that is too long for the picture wraps, instead of being cut
    with run.changes(show_trouble) as changes, Live(console=console, auto_refresh=False) as live:
        while True:
            if if_reachable(picture.look, show_trouble):
                picture.trouble = ""
            left = time_left(time.monotonic() - began, run.done - done_before, run.total - run.done)
            if any(job.phase for job in picture.running):
                left = None  # nobody knows how many rounds will follow
            live.update(draw(picture, left, console.width), refresh=True)
            if run.ended:
                return
            moving = run.counts[State.RUNNING] or (picture.overview and picture.overview.waiting)
            changes.wait(LOOK_SECONDS if moving else None, FRAME_SECONDS)


def draw(picture: Picture, left: float | None, width: int) -> RenderableType:
    """The picture as lines that fit a terminal of this width."""
    run, counts = picture.run, picture.run.counts
    title, done, eta = f"run {run.id}", f"{run.done:,}/{run.total:,}", _eta(picture, left)
    room = width - len(title) - len(done) - len(eta) - 4
    name = layout.shortened(inert(run.name), max(layout.SHORTEST_TEXT, min(30, room // 2)))
    bar = ProgressBar(total=max(run.total, 1), completed=run.done, width=max(5, min(30, room - cell_len(name))))
    head = Table.grid(padding=(0, 1))
    head.add_row(Text(title, "bold"), name, bar, done, Text(eta, "dim"))
    tally = Text("  ")
    for state, count in run.tally(picture.overview).items():
        tally.append(f"{count:,} {state}  ", output.STYLES[state])
    lines: list[RenderableType] = [head, tally]
    lines += [_line(job, job.shown_state, width) for job in picture.running]
    if counts[State.RUNNING] > SHOWN:
        lines.append(Text(f"  … and {counts[State.RUNNING] - SHOWN:,} more", "dim"))
    if len(picture.failed) == 1:
        lines.append(_line(picture.failed[0], State.FAILED, width))
    if picture.overview:
        lines += _groups(picture.overview, width, one_failed=len(picture.failed) == 1)
    if picture.stuck:
        lines.append(Text(f"  {picture.stuck}", "yellow"))
    if picture.tail:
        lines.append(Text(f"  the last lines of the log of {picture.tail_of}:", "dim"))
        lines += [Text(f"    {line}", no_wrap=True, overflow="ellipsis") for line in picture.tail]
    if picture.failed:
        lines += [Text(f"  {line}", "dim") for line in next_commands(picture.failed[0])]
    if picture.trouble:
        lines.append(Text(f"  {inert(picture.trouble)}; trying again", "yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def _groups(overview: RunOverview, width: int, *, one_failed: bool) -> list[RenderableType]:
    """Why jobs failed or wait, and their warnings. A single failed job has its own line."""
    room = width - len("  ✗ ")
    failed = [] if one_failed else groups.lines(overview.failed, room)
    return [
        Text(f"  {mark} {line}", style, no_wrap=True, overflow="ellipsis")
        for mark, style, found in (
            ("✗", output.STYLES[State.FAILED], failed),
            ("↻", output.STYLES[State.QUEUED], groups.lines(overview.waiting, room)),
            ("!", "yellow", groups.lines(overview.warnings, room)),
        )
        for line in found
    ]


def _eta(picture: Picture, left: float | None) -> str:
    run = picture.run.data
    if picture.run.ended and run.finished_at:
        return f"{picture.run.state} after {output.seconds(run.finished_at - run.created_at)}"
    if left is None:
        return ""
    return f"about {output.seconds(left) if left >= 10 else f'{max(1, round(left))}s'} left"


def _line(job: Job, state: str, width: int) -> RenderableType:
    """A job on one line. If it is too long, the parameters are shortened first."""
    data = job.data
    text = Text("  ", no_wrap=True, overflow="ellipsis")
    text.append("✗ " if state == State.FAILED else "▸ ", output.STYLES[state])
    text.append(data.id, "bold")
    how = _how(job, state)
    in_loop = f"{data.phase} of round {data.round}" if data.phase else None
    if named := " ".join(filter(None, [data.step, in_loop, output.cell(data.params)])):
        room = width - text.cell_len - how.cell_len - 1
        text.append(" " + layout.shortened(inert(named), max(room, layout.SHORTEST_TEXT)))
    return text.append_text(how)


def _how(job: Job, state: str) -> Text:
    """How far the job is, or why it failed."""
    data, text = job.data, Text()
    if state == ASSIGNED:
        text.append(f"  assigned to {inert(data.worker or '?')}", "dim")
    elif state == State.RUNNING:
        if data.progress is not None:
            text.append(f"  {data.progress:.0%}", "cyan")
        if data.message:
            text.append(f" {inert(data.message)}", "cyan")
        since = datetime.now(UTC) - data.began_at if data.began_at else 0
        text.append(f"  {output.seconds(since)} on {inert(data.worker or '?')}", "dim")
    else:
        text.append(f"  {inert(data.reason)}", "red")
    return text
