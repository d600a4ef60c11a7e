"""deborgen cancel"""

from __future__ import annotations

import click

from deborgen import output
from deborgen.cli import App, json_option, verb
from deborgen.errors import NotPossible
from deborgen_shared.states import CancelEffect

#: What each answer of the coordinator means, for one job and for several.
MEANING: dict[str, tuple[str, str]] = {
    CancelEffect.CANCELED: ("canceled before it started", "canceled before they started"),
    CancelEffect.CANCEL_REQUESTED: ("told to stop", "told to stop"),
    CancelEffect.ALREADY_TERMINAL: ("had already ended", "had already ended"),
}
#: At most this many jobs are named.
NAMED = 10


@verb(name="cancel")
@click.argument("references", metavar="RUN|JOB...", nargs=-1, required=True)
@click.option("--reason", default="", metavar="TEXT", help="Reason to record in the history.")
@json_option
def command(app: App, references: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Cancel runs or jobs.

    A queued job never starts. A running job is told to stop, and gets a moment to do so. The exit code is 7 if
    everything had already ended.
    """
    answers: dict[str, str] = {}
    for text in references:
        answers |= app.client.named(text).cancel(reason)
    if as_json:
        output.json("jobs", answers)
    else:
        for answer, (of_one, of_several) in MEANING.items():
            if jobs := [job for job, given in answers.items() if given == answer]:
                meaning = of_one if len(jobs) == 1 else of_several
                output.say(f"{output.counted(len(jobs), 'job')} {meaning}: {_names(jobs)}")
    if answers and set(answers.values()) == {CancelEffect.ALREADY_TERMINAL}:
        raise NotPossible("there was nothing left to cancel")


def _names(jobs: list[str]) -> str:
    more = f" and {len(jobs) - NAMED:,} more" if len(jobs) > NAMED else ""
    return ", ".join(jobs[:NAMED]) + more
