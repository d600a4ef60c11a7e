"""deborgen watch"""

from __future__ import annotations

import click

from deborgen import waiting
from deborgen.cli import App
from deborgen.cli import command as verb


@verb(name="watch")
@click.argument("ref", metavar="[RUN]", default="last")
def command(app: App, ref: str) -> int:
    """Watch a run live until it ends.

    Ctrl-C detaches: the run goes on. The exit code says how the run ended.
    """
    from deborgen import live

    run = app.client.run(ref)
    with waiting.detachable(run):
        live.watch(run)
    return waiting.conclude(run)
