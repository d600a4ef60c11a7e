"""deborgen logs"""

from __future__ import annotations

import click

from deborgen import follow as following
from deborgen import output, refs, waiting
from deborgen.cli import App, verb
from deborgen.runs import Job


@verb(name="logs")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@click.option("-f", "--follow", is_flag=True, help="Print new output as it is written, until the jobs have ended.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Attempt N instead of the newest one.")
@click.option("--failed", is_flag=True, help="Only jobs that failed; with --follow, each when it fails.")
def command(app: App, ref: str, follow: bool, attempt: int | None, failed: bool) -> None:
    """Print the output of jobs.

    In a pipe, the bytes are exactly as the job wrote them; on a terminal, control characters are made visible. The logs
    of several jobs are printed one after another; with --follow, line by line with the job's id in front.
    """
    named = app.client.named(ref)
    with waiting.detachable(named):
        if isinstance(named, Job):
            following.print_log(named, attempt or refs.parse(ref).attempt, follow)
        elif named.total == 1 and not failed:
            following.print_log(next(named.jobs(limit=1)), attempt, follow)
        else:
            if follow:
                count = following.print_logs_live(named, failed)
            else:
                count = following.print_logs_in_turn(named, attempt, failed)
            if not count:
                output.hint(f"no job of run {named.id} {'failed' if failed else 'has started'}")
