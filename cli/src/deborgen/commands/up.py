"""deborgen up"""

from __future__ import annotations

from pathlib import Path

import click

from deborgen import embedded, output, profile, runtime
from deborgen.cli import CONTEXT
from deborgen.connection import Connection
from deborgen.errors import DeborgenError
from deborgen.runtime import Runtime
from deborgen_shared import contract


@click.command(name="up", context_settings=CONTEXT)
@click.option("-d", "--detach", is_flag=True, help="Run in the background; `deborgen down` stops it.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for all data. [default: $XDG_DATA_HOME/deborgen/up]",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port on 127.0.0.1. [default: 8765, or a free one]")
@click.option(
    "--runner",
    type=click.Choice(["auto", "podman", "subprocess"]),
    default="auto",
    show_default=True,
    help="How jobs run. auto means Podman if it works, otherwise plain processes.",
)
@click.option(
    "--network",
    type=click.Choice(["none", "internet"]),
    default="none",
    show_default=True,
    help="Network that jobs may ask for. With internet, jobs that say `network: internet` can run.",
)
@click.option("--builds", is_flag=True, help="Let jobs build images on this machine, with Podman.")
@click.option("--cpus", metavar="N", help="Number of processors for jobs. [default: all]")
@click.option("--memory", metavar="SIZE", help="Memory for jobs, for example 8GiB. [default: 7/8 of the machine's]")
def command(
    detach: bool, data_dir: Path | None, port: int | None, runner: str, builds: bool, **worker: str | None
) -> None:
    """Start a coordinator and a worker on this machine.

    They stay up until Ctrl-C or `deborgen down`. Until then, the other commands find them without any configuration.
    Runs, results and logs are kept: the next `deborgen up` continues where this one stopped.
    """
    if runtime.is_locked():
        raise embedded.already_up()
    settings = {name: value for name, value in worker.items() if value} | ({"builds": "true"} if builds else {})
    plan = embedded.make_plan(data_dir, port, runner, settings)
    if detach:
        given: dict[str, object] = {"--data-dir": plan.data_dir, "--port": port, "--runner": runner}
        given |= {f"--{name}": value for name, value in worker.items()}
        arguments = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
        _announce(embedded.detach([*arguments, *(["--builds"] if builds else [])], plan.data_dir), "deborgen down")
        return
    embedded.run(plan, lambda state: _announce(state, "Ctrl-C, or deborgen down"))
    output.say("\ndown. Runs and results are kept; the next deborgen up continues with them.")


def _elsewhere(url: str) -> str:
    """Why this person's commands do not use the pool at this address; empty if they do."""
    try:
        used = profile.find().url
    except DeborgenError as failure:
        return failure.message
    return "" if used == url else f"your commands use {used}"


def _link(state: Runtime) -> str:
    """A link to the dashboard; empty if the coordinator does not answer right now, which must not end the pool."""
    try:
        return state.url + Connection(state.url, state.token, patience=0).call(contract.CREATE_LINK).path
    except DeborgenError:
        return ""


def _announce(state: Runtime, end: str) -> None:
    output.say(f"deborgen is up at {state.url}, with this machine as worker '{state.worker}'.")
    if state.runner == "podman":
        output.say("runner: Podman for jobs with an image; jobs without one run as your own processes.")
    else:
        reason = f" (Podman: {state.why_not_podman})" if state.why_not_podman else ""
        output.say(f"runner: subprocess{reason}; jobs run as your own processes; jobs with an image must wait.")
    output.say(f"data:   {state.data_dir}")
    if link := _link(state):
        output.say(f"see it: {link}\n        (this link works once, within a minute; a new one: deborgen open)")
    if note := _elsewhere(state.url):
        output.say(f"note:   {note}; to use this one: export DEBORGEN_URL={state.url}")
    output.hint(f"stop it: {end}")
