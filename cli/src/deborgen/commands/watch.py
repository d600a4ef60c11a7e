"""deborgen watch"""

from __future__ import annotations

import click

from deborgen import waiting
from deborgen.cli import App, verb


@verb(name="watch")
@click.argument("ref", metavar="[RUN]", default="last")
def command(app: App, ref: str) -> int:
    """Watch a run live until it ends.

    Ctrl-C stops watching, and the run continues. The exit code says how the run ended.
    """
    return waiting.watch(app.client.run(ref))
