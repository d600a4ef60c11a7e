"""deborgen run"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from deborgen import output
from deborgen.cli import App, verb
from deborgen.click_types import axes_option, pair
from deborgen.commands.submit import ATTEMPTS_HELP, announce, stay_with, submit
from deborgen.errors import InvalidJob
from deborgen.submit.read import PreparedJobFile, prepare_data

#: The option that sets each key of the job file.
OPTIONS: dict[tuple[str | int, ...], str] = {
    ("resources", "cpus"): "--cpus",
    ("resources", "memory"): "--memory",
    ("resources", "gpus"): "--gpus",
    **{(name,): f"--{name}" for name in ("name", "image", "timeout", "network", "env")},
    ("files",): "--file",
    ("artifacts",): "--artifact",
    ("sweep",): "--param",
}


def _prepared(job: dict[str, Any], axes: dict[str, Any]) -> PreparedJobFile:
    """The job, checked. A problem names the option that it comes from, because there is no job file to look at."""
    try:
        return prepare_data(job, Path(), axes)
    except InvalidJob as invalid:
        lines = []
        for problem in invalid.details["problems"]:
            option = OPTIONS.get(tuple(problem.path[:2])) or OPTIONS.get(tuple(problem.path[:1]), "the command")
            # "'timeout' is not a duration" becomes "--timeout is not a duration".
            quoted_key = f"'{'.'.join(map(str, problem.path))}' "
            said = problem.message.removeprefix(quoted_key)
            line = f"{option} {said}" if said != problem.message else f"{option}: {said}"
            lines.append(f"{line}; {problem.hint}" if problem.hint else line)
        raise InvalidJob("\n".join(lines)) from None


@verb(name="run")
@click.argument("words", metavar="-- CMD [ARG]...", nargs=-1, required=True)
@click.option("--name", metavar="NAME", help="Name of the run. [default: the command]")
@click.option("-i", "--image", metavar="IMAGE", help="Container image to run in.")
@click.option("-F", "--file", "files", multiple=True, metavar="PATH", help="Upload a file or folder. May be repeated.")
@click.option(
    "-e", "--env", type=pair, multiple=True, metavar="NAME=VALUE", help="Set an environment variable. May be repeated."
)
@axes_option("Sweep over an axis, as in `deborgen submit`. May be repeated.")
@click.option("-a", "--artifact", "artifacts", multiple=True, metavar="GLOB", help="Keep these files. May be repeated.")
@click.option("--cpus", type=float, metavar="N", help="Number of processors.")
@click.option("--memory", metavar="SIZE", help="Memory, for example 2GiB.")
@click.option("--gpus", type=int, metavar="N", help="Number of GPUs.")
@click.option("--timeout", metavar="DURATION", help="Time limit, for example 30m.")
@click.option("--max-attempts", type=click.IntRange(1, 100), metavar="N", help=ATTEMPTS_HELP)
@click.option("--network", type=click.Choice(["none", "internet"]), help="Which network the job may reach.")
@click.option("-d", "--detach", is_flag=True, help="Submit and return; print the number of the run.")
def command(app: App, words: tuple[str, ...], axes: dict[str, Any], detach: bool, **given: Any) -> int:
    """Run one command as a job.

    Prints the command's output until the command ends. The exit code says how it ended. Everything after -- is the
    command. With -p NAME=VALUES it runs once per value, and ${{ NAME }} in an argument is replaced by the value.
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
        "max_attempts": given["max_attempts"],
    }
    run = submit(app, _prepared({key: value for key, value in job.items() if value}, axes))
    if detach:
        announce(run)
    else:
        for warning in run.warnings:
            output.say(f"warning: {warning}")
        output.hint(f"run {run.id}")
    return stay_with(run, follow=not detach)
