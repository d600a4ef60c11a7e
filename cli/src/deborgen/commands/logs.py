"""deborgen logs"""

from __future__ import annotations

import click

from deborgen import follow as following
from deborgen import output, refs, waiting
from deborgen.cli import App, verb
from deborgen.runs import Job


@verb(name="logs")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@click.option("-f", "--follow", is_flag=True, help="Go on as they write, until they have ended.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt, instead of the newest.")
@click.option("--failed", is_flag=True, help="Only of the jobs that failed.")
def command(app: App, ref: str, follow: bool, attempt: int | None, failed: bool) -> None:
    """Print what jobs wrote.

    In a pipe the bytes are as the job wrote them; on a terminal, control characters are made visible. The logs of
    several jobs come one after another; with --follow, line by line with the job in front.
    """
    named = app.client.named(ref)
    with waiting.detachable(named):
        if isinstance(named, Job):
            following.one(named, attempt or refs.parse(ref).attempt, follow)
        elif named.total == 1 and not failed:
            following.one(next(named.jobs(limit=1)), attempt, follow)
        elif follow:
            following.all_of(named)
        elif not following.one_after_another(named, attempt, failed):
            output.hint(f"no job of run {named.id} failed" if failed else f"no job of run {named.id} has started")
