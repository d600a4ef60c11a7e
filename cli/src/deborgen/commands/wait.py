"""deborgen wait"""

from __future__ import annotations

import time

import click

from deborgen import output, waiting
from deborgen.cli import App, verb
from deborgen.click_types import duration


@verb(name="wait")
@click.argument("references", metavar="[RUN|JOB]...", nargs=-1)
@click.option("--timeout", type=duration, metavar="DURATION", help="Stop waiting after this time, with exit code 124.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; only set the exit code.")
def command(app: App, references: tuple[str, ...], timeout: float | None, quiet: bool) -> int:
    """Wait until runs or jobs have ended (for scripts).

    The exit code is 0 if all of them succeeded. Otherwise it is the exit code of the first one that did not succeed.
    """
    if quiet:
        app.client.connection.on_trouble = lambda sentence: None
    deadline = None if timeout is None else time.monotonic() + timeout
    code = 0
    for text in references or ("last",):
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        what = app.client.named(text)
        with waiting.detachable(what):
            what.until_ended(left)
        if not quiet:
            output.say(f"{what.noun} {what.data.id} {what.state}")
        code = code or waiting.exit_code(what)
    return code
