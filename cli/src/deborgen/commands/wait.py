"""deborgen wait"""

from __future__ import annotations

import time

import click

from deborgen import output, refs, waiting
from deborgen.cli import App
from deborgen.cli import command as verb
from deborgen.kinds import DURATION


@verb(name="wait")
@click.argument("references", metavar="[RUN|JOB]...", nargs=-1)
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Give up after this long, with exit code 124.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing; the exit code tells.")
def command(app: App, references: tuple[str, ...], timeout: float | None, quiet: bool) -> int:
    """Wait until runs or jobs have ended; for scripts.

    The exit code is 0 when all succeeded, else that of the first that did not.
    """
    if quiet:
        app.client.connection.on_trouble = lambda sentence: None
    deadline = None if timeout is None else time.monotonic() + timeout
    code = 0
    for text in references or ("last",):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ref = refs.parse(text)
        if ref.index is None:
            run = app.client.run(text)
            with waiting.detachable(run):
                run.wait(left)
            ended, state = waiting.exit_code(run), f"run {run.id} {run.state}"
        else:
            job = app.client.job(text)
            with waiting.detachable(job):
                job.wait(left)
            ended, state = waiting.job_exit_code(job), f"job {job.id} {job.state}"
        if not quiet:
            output.say(state)
        code = code or ended
    return code
