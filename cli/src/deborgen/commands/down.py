"""deborgen down"""

from __future__ import annotations

import click

from deborgen import embedded, output
from deborgen.cli import CONTEXT


@click.command(name="down", context_settings=CONTEXT)
def command() -> None:
    """Stop what `deborgen up` started.

    Runs and results are kept. Jobs that were running start again after the next `deborgen up`.
    """
    state = embedded.down()
    if state is None:
        output.say("deborgen was not up on this machine.")
    else:
        output.say(f"down. Runs and results are kept in {state.data_dir}.")
