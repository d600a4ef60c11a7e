"""deborgen retry"""

from __future__ import annotations

from typing import get_args

import click

from deborgen import output
from deborgen.cli import App, json_option, verb
from deborgen.commands.submit import announce, stay_with
from deborgen_shared.messages import FIRST_ROUND, Retried, Rounds
from deborgen_shared.states import State


@verb(name="retry")
@click.argument("ref", metavar="[RUN]", default="last")
@click.option(
    "--failed", "only", flag_value=State.FAILED.value, default=State.FAILED.value,
    help="Only jobs that failed (the default).",
)  # fmt: skip
@click.option("--canceled", "only", flag_value=State.CANCELED.value, help="Only jobs that were canceled.")
@click.option("--all", "only", flag_value="all", help="All jobs.")
@click.option(
    "--rounds", type=click.Choice(get_args(Rounds)), default=FIRST_ROUND, show_default=True,
    help="Begin loops again with the first round, or go on from the last one whose work succeeded.",
)  # fmt: skip
@click.option("-w", "--watch", is_flag=True, help="Watch the new run until it ends.")
@json_option
def command(app: App, ref: str, only: Retried, rounds: Rounds, watch: bool, as_json: bool) -> int:
    """Run jobs of a run again, as a new run.

    The jobs are exactly the same, and the old run is not changed. Prints the number of the new run.
    """
    old = app.client.run(ref)
    new = old.retry(only, rounds=rounds)
    announce(new, as_json, f"{output.counted(new.total, 'job')} of run {old.id} again")
    return stay_with(new, watch=watch)
