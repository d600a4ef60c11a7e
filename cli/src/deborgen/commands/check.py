"""deborgen check"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deborgen import output
from deborgen.cli import App, json_option
from deborgen.cli import command as verb
from deborgen.errors import Unreachable
from deborgen.kinds import PAIR, parameters

if TYPE_CHECKING:
    from deborgen.client import Client
    from deborgen.preparation import Prepared


@verb(name="check")
@click.argument("file", metavar="FILE")
@click.option("-p", "--param", "params", type=PAIR, multiple=True, metavar="NAME=VALUES", help="As in submit.")
@click.option("--offline", is_flag=True, help="Do not ask the coordinator.")
@json_option
def command(app: App, file: str, params: tuple[tuple[str, str], ...], offline: bool, as_json: bool) -> None:
    """Check a job file and show what it would run.

    Nothing is submitted. All problems are shown at once, each at its line. Without --offline it also says what is to
    be uploaded, and what the pool as it is now could not run.
    """
    from deborgen import plan, preparation

    axes = parameters(params)
    if file == "-":
        prepared = preparation.prepare_text(
            sys.stdin.buffer.read(), "<stdin>", "stdin", Path(), axes, outcome="it cannot be submitted"
        )
    else:
        prepared = preparation.prepare_file(Path(file), axes, outcome="it cannot be submitted")
    answer = plan.of(prepared, None if offline else _client(app))
    if as_json:
        output.json("plan", answer)
    else:
        _print(file, prepared, answer)


def _client(app: App) -> Client | None:
    """The coordinator to ask; None where none is known, which is no fault of the job file."""
    try:
        return app.client
    except Unreachable as nobody:
        output.hint(f"{nobody.message}: what only a coordinator can tell is left out")
        return None


def _print(file: str, prepared: Prepared, answer: dict[str, Any]) -> None:
    write = output.write
    write(f"{output.one_line(file)} is valid: {output.counted(answer['jobs'], 'job')}")
    write(f" in {output.counted(len(answer['steps']), 'step')}\n" if prepared.jobfile.steps[0].id else "\n")
    for step in answer["steps"]:
        if step["id"]:
            needs = f" after {', '.join(step['needs'])}" if step["needs"] else ""
            write(f"  {step['id']}: {output.counted(step['jobs'], 'job')}{needs}\n")
        indent = "    " if step["id"] else "  "
        shown = step["first"]
        for job in shown:
            write(f"{indent}{job['index']:>3}  {_line(job)}\n")
        hidden = step["jobs"] - len(shown) - len(step["last"])
        if hidden > 0:
            write(f"{indent}     … {hidden:,} more …\n")
        for job in step["last"]:
            write(f"{indent}{job['index']:>3}  {_line(job)}\n")
    if answer["files"]:
        text = f"files: {answer['files']:,}, {output.size(answer['bytes'])}"
        if answer["missing_bytes"] is not None:
            text += f", of which {output.size(answer['missing_bytes'])} are to be uploaded"
        write(text + "\n")
    for text in prepared.skipped:
        output.say(f"left out: {text}")
    for warning in answer["warnings"]:
        output.say(f"warning: {warning}")


def _line(job: dict[str, Any]) -> str:
    params = output.cell(job["params"])
    first, *more = job["run"].strip().splitlines() or [""]
    command = first if len(first) <= 70 and not more else f"{first[:70]} …"
    return output.one_line(f"{params}  {command}" if params else command)
