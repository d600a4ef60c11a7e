"""deborgen submit"""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import click

from deborgen import output, waiting
from deborgen.cli import App, json_option
from deborgen.cli import command as verb
from deborgen.kinds import PAIR, parameters
from deborgen.runs import Run


@verb(name="submit")
@click.argument("file", metavar="FILE")
@click.option(
    "-p",
    "--param",
    "params",
    type=PAIR,
    multiple=True,
    metavar="NAME=VALUES",
    help="Override or add an axis: seed=1..5, method=euler,rk4, dt=0.1. May be repeated.",
)
@click.option("-w", "--watch", is_flag=True, help="Watch it live until it ends.")
@click.option("--wait", is_flag=True, help="Wait until it ends, silently.")
@click.option("-f", "--follow", is_flag=True, help="Print what its jobs write until it ends.")
@click.option("--key", metavar="WORD", help="Idempotency key: submitted twice under one, it is one run.")
@json_option
def command(
    app: App,
    file: str,
    params: tuple[tuple[str, str], ...],
    watch: bool,
    wait: bool,
    follow: bool,
    key: str | None,
    as_json: bool,
) -> int:
    """Submit a job file: one run, with all its jobs.

    FILE may be - for standard input. Only files that the coordinator lacks are uploaded. Prints the number of the
    run. With --watch, --wait or --follow the exit code says how the run ended.
    """
    from deborgen import preparation, submission
    from deborgen.progress import bar

    axes = parameters(params)
    if file == "-":
        prepared = preparation.prepare_text(sys.stdin.buffer.read(), "<stdin>", "stdin", Path(), axes)
    else:
        prepared = preparation.prepare_file(Path(file), axes)
    for text in prepared.skipped:
        output.say(f"left out: {text}")
    connection = app.client.connection
    run = Run(connection, submission.send(connection, prepared, key or str(uuid4()), bar))
    announce(run, as_json)
    return see_through(run, watch=watch, wait=wait, follow=follow)


def announce(run: Run, as_json: bool = False) -> None:
    """Say which run it became: a sentence to a person, the number alone to a script."""
    if as_json:
        output.json("run", run.data)
    elif output.on_terminal():
        output.write(f"Run {run.id}: {output.one_line(run.name)}, {output.counted(run.total, 'job')}\n")
    else:
        output.write(f"{run.id}\n")
    for warning in run.warnings:
        output.say(f"warning: {warning}")


def see_through(run: Run, *, watch: bool, wait: bool, follow: bool) -> int:
    """Stay with the run as asked, and say how it ended."""
    if not (watch or wait or follow):
        output.hint(f"next: deborgen watch {run.id}")
        return 0
    with waiting.detachable(run):
        if watch:
            from deborgen import live

            live.watch(run)
        elif follow:
            from deborgen import follow as following

            if run.total == 1:
                following.one(next(run.jobs(limit=1)), follow=True)
            else:
                following.all_of(run)
        run.wait()
    return waiting.conclude(run) if watch else waiting.report(run)
