"""deborgen why"""

from __future__ import annotations

import click

from deborgen import output
from deborgen.cli import App, json_option
from deborgen.cli import command as verb


@verb(name="why")
@click.argument("ref", metavar="[JOB]", default="last")
@json_option
def command(app: App, ref: str, as_json: bool) -> None:
    """Say why a job waits, or why it ended as it did.

    One line a worker says what keeps the job from it.
    """
    why = app.client.job(ref).why()
    if as_json:
        output.json("why", why)
    elif output.on_terminal():
        output.write(f"{why.job}: {output.one_line(why.summary)}\n")
        width = max((len(worker.worker) for worker in why.workers), default=0)
        for worker in why.workers:
            mark = "✓" if worker.fits else "✗"
            output.write(f"  {mark} {worker.worker:<{width}}  {output.one_line(worker.reason)}\n")
    else:
        rows = [[why.job, worker.worker, worker.fits, worker.reason] for worker in why.workers]
        output.table(["job", "worker", "fits", "reason"], [[why.job, "", "", why.summary], *rows])
