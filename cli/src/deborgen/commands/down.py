"""deborgen down"""

from __future__ import annotations

import click

from deborgen import embedded, output
from deborgen.cli import CONTEXT


@click.command(name="down", context_settings=CONTEXT)
def command() -> None:
    """Stop what `deborgen up` started.

    Runs and results are kept; what was running is given back and runs again after the next `up`.
    """
    state = embedded.down()
    if state is None:
        output.say("nothing was up.")
    else:
        output.say(f"down. Runs and results are kept in {state.data_dir}.")
