"""deborgen submit"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import click

from deborgen import follow as following
from deborgen import output, waiting
from deborgen.cli import App, json_option, verb
from deborgen.click_types import axes_option, image
from deborgen.runs import Run
from deborgen.submit.read import PreparedJobFile, prepare
from deborgen.submit.send import send
from deborgen_shared.terminal import inert

ATTEMPTS_HELP = "Maximum number of attempts of each job if machines fail."


@verb(name="submit")
@click.argument("file", metavar="FILE")
@axes_option("Override or add an axis: seed=1..5, method=euler,rk4, dt=0.1. May be repeated.")
@click.option("-i", "--image", type=image, metavar="IMAGE", help="Run the jobs in this image, whatever the file says.")
@click.option("--max-attempts", type=click.IntRange(1, 100), metavar="N", help=ATTEMPTS_HELP)
@click.option("-w", "--watch", is_flag=True, help="Watch the run live until it ends.")
@click.option("--wait", is_flag=True, help="Wait until the run ends, without showing its progress.")
@click.option("-f", "--follow", is_flag=True, help="Print the output of its jobs until the run ends.")
@click.option("--key", metavar="WORD", help="Idempotency key: submitting twice with the same key makes one run.")
@json_option
def command(
    app: App, file: str, axes: dict[str, Any], image: str | None, max_attempts: int | None, key: str | None,
    as_json: bool, **stay: bool,
) -> int:  # fmt: skip
    """Submit a job file as a new run.

    FILE may be - for standard input. Only files that the coordinator lacks are uploaded. Prints the number of the
    run. With --watch, --wait or --follow, the exit code says how the run ended, and --json prints how it ended.
    """
    given = {"image": image, "max_attempts": max_attempts}
    run = submit(app, prepare(file, axes, {name: value for name, value in given.items() if value}), key)
    if as_json and any(stay.values()):  # print a single object, which says how the run ended
        code = stay_with(run, **stay)
        announce(run.refresh(), as_json)
        return code
    announce(run, as_json)
    return stay_with(run, **stay)


def submit(app: App, prepared: PreparedJobFile, key: str | None = None) -> Run:
    """Say which files were skipped, print the warnings, and submit the job file."""
    for text in prepared.skipped:
        output.say(f"skipped: {text}")
    for text in prepared.warnings:
        output.say(f"warning: {text}")
    connection = app.client.connection
    return Run(connection, send(connection, prepared, key or str(uuid4()), output.bar, pins=key is None))


def announce(run: Run, as_json: bool = False, what: str = "") -> None:
    """Print the number of the run: in a sentence for a person, alone for a script."""
    if as_json:
        output.json("run", run.data)
    elif output.on_terminal():
        what = what or f"{inert(run.name)}, {output.counted(run.total, 'job')}"
        output.write(f"Run {run.id}: {what}\n")
    else:
        output.write(f"{run.id}\n")
    for warning in run.warnings:
        output.say(f"warning: {warning}")


def stay_with(run: Run, *, watch: bool = False, wait: bool = False, follow: bool = False) -> int:
    """Watch, follow or wait for the run, as requested, and return the exit code. If nothing is requested, return 0."""
    if watch:
        return waiting.watch(run)
    if not (wait or follow):
        output.hint(f"next: deborgen watch {run.id}")
        return 0
    with waiting.detachable(run):
        if follow:
            if run.total == 1:
                following.print_log(next(run.jobs(limit=1)), follow=True)
            else:
                following.print_logs_live(run)
        run.until_ended()
    return waiting.report(run)
