"""deborgen run"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from deborgen import output
from deborgen.cli import App, verb
from deborgen.commands.submit import announce, see_through, send
from deborgen.kinds import axes_option, pair
from deborgen.preparation import prepare_data


@verb(name="run")
@click.argument("words", metavar="-- CMD [ARG]...", nargs=-1, required=True)
@click.option("--name", metavar="NAME", help="The name of the run. [default: the command]")
@click.option("-i", "--image", metavar="IMAGE", help="Container image.")
@click.option("-F", "--file", "files", multiple=True, metavar="PATH", help="Upload a file or folder. May be repeated.")
@click.option("-e", "--env", type=pair, multiple=True, metavar="NAME=VALUE", help="Environment. May be repeated.")
@axes_option("Sweep over an axis.")
@click.option("-a", "--artifact", "artifacts", multiple=True, metavar="GLOB", help="Keep these files. May be repeated.")
@click.option("--cpus", type=float, metavar="N", help="Processors.")
@click.option("--memory", metavar="SIZE", help="Memory, as in 2GiB.")
@click.option("--gpus", type=int, metavar="N", help="GPUs.")
@click.option("--timeout", metavar="DURATION", help="Time limit, as in 30m.")
@click.option("--network", type=click.Choice(["none", "internet"]), help="Network.")
@click.option("-d", "--detach", is_flag=True, help="Only submit; print the number of the run.")
def command(app: App, words: tuple[str, ...], axes: dict[str, Any], detach: bool, **given: Any) -> int:
    """Run one command as a job.

    Prints what it writes, and waits until it ends; the exit code says how. Everything after -- is the command. With
    -p it is run once a value, and ${{ name }} in an argument is the value.
    """
    job: dict[str, Any] = {
        "name": given["name"] or Path(words[0]).name,
        "run": list(words),
        "image": given["image"],
        "files": list(given["files"]),
        "env": dict(given["env"]),
        "artifacts": list(given["artifacts"]),
        "resources": {key: given[key] for key in ("cpus", "memory", "gpus") if given[key] is not None},
        "timeout": given["timeout"],
        "network": given["network"],
    }
    run = send(app, prepare_data({key: value for key, value in job.items() if value}, Path(), axes))
    if detach:
        announce(run)
    else:
        for warning in run.warnings:
            output.say(f"warning: {warning}")
        output.hint(f"run {run.id}")
    return see_through(run, follow=not detach)
