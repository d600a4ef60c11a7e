"""deborgen logs"""

from __future__ import annotations

import click

from deborgen import output, refs, waiting
from deborgen.cli import App
from deborgen.cli import command as verb


@verb(name="logs")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@click.option("-f", "--follow", is_flag=True, help="Go on as they write, until they have ended.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt, instead of the newest.")
@click.option("--failed", is_flag=True, help="Only of the jobs that failed.")
def command(app: App, ref: str, follow: bool, attempt: int | None, failed: bool) -> int:
    """Print what jobs wrote.

    In a pipe the bytes are as the job wrote them; on a terminal, control characters are made visible. The logs of
    several jobs come one after another; with --follow, line by line with the job in front.
    """
    from deborgen import follow as following

    named = refs.parse(ref)
    if named.index is not None:
        job = app.client.job(ref)
        with waiting.detachable(job):
            following.one(job, attempt or named.attempt, follow)
        return 0
    run = app.client.run(ref)
    with waiting.detachable(run):
        if run.total == 1 and not failed:
            following.one(next(run.jobs(limit=1)), attempt, follow)
        elif follow:
            following.all_of(run)
        else:
            found = following.one_after_another(run, attempt, failed)
            if not found:
                output.hint(f"no job of run {run.id} failed" if failed else f"no job of run {run.id} has started")
    return 0
