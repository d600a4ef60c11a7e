"""deborgen cancel"""

from __future__ import annotations

from collections import Counter

import click

from deborgen import output
from deborgen.cli import App, json_option, verb
from deborgen.errors import NotPossible
from deborgen_shared.states import State

MEANING: dict[str, str] = {
    State.CANCELED: "will never start",
    "cancel_requested": "told to stop",
    "already_terminal": "had ended already",
}


@verb(name="cancel")
@click.argument("references", metavar="RUN|JOB...", nargs=-1, required=True)
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept in the history.")
@json_option
def command(app: App, references: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Cancel runs or jobs.

    A queued job will never start. A running one is told to stop, and has a moment to do so. Exit code 7 when
    everything had ended already.
    """
    answers: dict[str, str] = {}
    for text in references:
        answers |= app.client.named(text).cancel(reason)
    if as_json:
        output.json("jobs", answers)
    else:
        counts = Counter(answers.values())
        for meaning, words in MEANING.items():
            if counts[meaning]:
                output.say(f"{output.counted(counts[meaning], 'job')}: {words}")
    if answers and set(answers.values()) == {"already_terminal"}:
        raise NotPossible("nothing was left to cancel")
