"""deborgen check"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec

from deborgen import output, preparation
from deborgen.cli import App, json_option, verb
from deborgen.errors import Unreachable
from deborgen.kinds import axes_option
from deborgen.preparation import Prepared
from deborgen_shared.jobfile.model import Step
from deborgen_shared.jobfile.template import render

if TYPE_CHECKING:
    from deborgen.connection import Connection

#: How many jobs of a step are shown from its beginning and from its end.
FIRST, LAST = 3, 2

OUTCOME = "it cannot be submitted"


@verb(name="check")
@click.argument("file", metavar="FILE")
@axes_option("As in submit.")
@click.option("--offline", is_flag=True, help="Do not ask the coordinator.")
@json_option
def command(app: App, file: str, axes: dict[str, Any], offline: bool, as_json: bool) -> None:
    """Check a job file and show what it would run.

    Nothing is submitted. All problems are shown at once, each at its line. Without --offline it also says what is to
    be uploaded, and what the pool as it is now could not run.
    """
    prepared = preparation.prepare(file, axes, outcome=OUTCOME)
    plan = _plan(prepared, None if offline else _connection(app))
    if as_json:
        output.json("plan", plan)
    else:
        _print(file, prepared, plan)


def _connection(app: App) -> Connection | None:
    """The coordinator to ask; None where none is known, which is no fault of the job file."""
    try:
        return app.client.connection
    except Unreachable as nobody:
        output.hint(f"{nobody.message}: what only a coordinator can tell is left out")
        return None


def _plan(prepared: Prepared, connection: Connection | None) -> dict[str, Any]:
    """What the job file would do. Without a connection, what only the coordinator knows is None."""
    steps = []
    index = 0
    for step in prepared.jobfile.steps:
        steps.append(_step(step, index))
        index += step.count
    missing = None
    warnings: list[str] = []
    if connection is not None:
        # Without a coordinator to ask, nobody pays for an HTTP client.
        from deborgen import submission, transfers

        body = submission.wire(prepared)
        missing = sum(file.size for file, _ in transfers.missing(connection, prepared.files))
        warnings = submission.ask(connection, prepared, body, OUTCOME)
    return {
        "name": prepared.jobfile.name,
        "jobs": prepared.jobfile.count,
        "steps": steps,
        "files": len(prepared.files),
        "bytes": sum(file.size for file in prepared.files),
        "missing_bytes": missing,
        "warnings": warnings,
    }


def _step(step: Step, before: int) -> dict[str, Any]:
    spec = msgspec.to_builtins(step.spec)

    def job(index: int, params: dict[str, Any]) -> dict[str, Any]:
        command = render(spec, params, {})["run"]
        return {"index": index, "params": params, "run": command if isinstance(command, str) else " ".join(command)}

    numbered = enumerate(step.params(), before + 1)
    # To leave out a single job would not make it shorter.
    first = list(islice(numbered, FIRST if step.count > FIRST + LAST + 1 else step.count))
    last = deque(numbered, maxlen=LAST)
    return {
        "id": step.id,
        "needs": step.needs,
        "jobs": step.count,
        "first": [job(*each) for each in first],
        "last": [job(*each) for each in last],
    }


def _print(file: str, prepared: Prepared, plan: dict[str, Any]) -> None:
    write = output.write
    write(f"{output.one_line(file)} is valid: {output.counted(plan['jobs'], 'job')}")
    write(f" in {output.counted(len(plan['steps']), 'step')}\n" if prepared.jobfile.steps[0].id else "\n")
    for step in plan["steps"]:
        indent = "  "
        if step["id"]:
            needs = f" after {', '.join(step['needs'])}" if step["needs"] else ""
            write(f"  {step['id']}: {output.counted(step['jobs'], 'job')}{needs}\n")
            indent = "    "
        lines = [f"{job['index']:>3}  {_line(job)}" for job in step["first"] + step["last"]]
        if hidden := step["jobs"] - len(lines):
            lines.insert(FIRST, f"     … {hidden:,} more …")
        write("".join(f"{indent}{line}\n" for line in lines))
    if plan["files"]:
        text = f"files: {plan['files']:,}, {output.size(plan['bytes'])}"
        if plan["missing_bytes"] is not None:
            text += f", of which {output.size(plan['missing_bytes'])} are to be uploaded"
        write(text + "\n")
    for text in prepared.skipped:
        output.say(f"left out: {text}")
    for warning in plan["warnings"]:
        output.say(f"warning: {warning}")


def _line(job: dict[str, Any]) -> str:
    params = output.cell(job["params"])
    first, *more = job["run"].strip().splitlines() or [""]
    command = first if len(first) <= 70 and not more else f"{first[:70]} …"
    return output.one_line(f"{params}  {command}" if params else command)
