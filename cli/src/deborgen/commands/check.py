"""deborgen check"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deborgen import output
from deborgen.cli import App, json_option, verb
from deborgen.click_types import axes_option
from deborgen.errors import Unreachable
from deborgen.submit import read
from deborgen.submit.read import PreparedJobFile
from deborgen_shared.jobfile.plan import FIRST, plan
from deborgen_shared.terminal import inert

if TYPE_CHECKING:
    from deborgen.connection import Connection

#: A longer command line is cut after this many characters.
LONGEST_COMMAND = 70

#: The end of a report: "2 problems, it cannot be submitted."
CONSEQUENCE = "it cannot be submitted"


@verb(name="check")
@click.argument("file", metavar="FILE")
@axes_option("Override or add an axis, as in `deborgen submit`. May be repeated.")
@click.option("--offline", is_flag=True, help="Skip the checks that need a coordinator.")
@json_option
def command(app: App, file: str, axes: dict[str, Any], offline: bool, as_json: bool) -> None:
    """Check a job file and show what it would run.

    Nothing is submitted. All problems are shown at once, each with its line. Unless --offline is given, it also asks
    the coordinator how much would be uploaded, and warns of jobs that no worker can run now.
    """
    prepared = read.prepare(file, axes, consequence=CONSEQUENCE)
    preview = _preview(prepared, None if offline else _connection(app))
    if as_json:
        output.json("plan", preview)
    else:
        _print(file, prepared, preview)


def _connection(app: App) -> Connection | None:
    """The coordinator to ask. None if none is known: that is not a problem of the job file."""
    try:
        return app.client.connection
    except Unreachable as unknown:
        output.hint(f"{unknown.message}: skipped the checks that need a coordinator")
        return None


def _preview(prepared: PreparedJobFile, connection: Connection | None) -> dict[str, Any]:
    """What the job file would do. Without a connection, the values that only a coordinator knows are None."""
    missing = None
    warnings: list[str] = []
    if connection is not None:
        # Imported here because an offline check should not pay for an HTTP client.
        from deborgen import transfers
        from deborgen.submit import send

        body = send.request_body(prepared)
        missing = sum(file.size for file, _ in transfers.missing(connection, prepared.files))
        warnings = send.check(connection, prepared, body, CONSEQUENCE)
    return {
        "name": prepared.jobfile.name,
        "jobs": prepared.jobfile.count,
        "most_jobs": prepared.jobfile.most,
        "steps": plan(prepared.jobfile),
        "files": len(prepared.files),
        "bytes": sum(file.size for file in prepared.files),
        "missing_bytes": missing,
        "warnings": [*prepared.warnings, *warnings],
    }


def _print(file: str, prepared: PreparedJobFile, preview: dict[str, Any]) -> None:
    write = output.write
    write(f"{inert(file)} is valid: {output.counted(preview['jobs'], 'job')}")
    write(f" in {output.counted(len(preview['steps']), 'step')}" if prepared.jobfile.steps[0].id else "")
    more = preview["most_jobs"] > preview["jobs"]
    write(f", and at most {preview['most_jobs']:,} with all rounds of its loops\n" if more else "\n")
    for step in preview["steps"]:
        indent = "  "
        if step["id"]:
            needs = f" after {', '.join(step['needs'])}" if step["needs"] else ""
            rounds = f", at most {output.counted(step['rounds'], 'round')}" if step["rounds"] else ""
            write(f"  {step['id']}: {output.counted(step['jobs'], 'job')}{rounds}{needs}\n")
            indent = "    "
        lines = [f"{job['index']:>3}  {_line(job)}" for job in step["first"] + step["last"]]
        if hidden := step["jobs"] - len(lines):
            lines.insert(FIRST, f"     … {hidden:,} more …")
        write("".join(f"{indent}{line}\n" for line in lines))
    if preview["files"]:
        text = f"files: {preview['files']:,}, {output.size(preview['bytes'])}"
        if preview["missing_bytes"] is not None:
            text += f", of which {output.size(preview['missing_bytes'])} will be uploaded"
        write(text + "\n")
    for text in prepared.skipped:
        output.say(f"skipped: {text}")
    for warning in preview["warnings"]:
        output.say(f"warning: {warning}")


def _line(job: dict[str, Any]) -> str:
    params = output.cell(job["params"])
    first, *more = job["run"].strip().splitlines() or [""]
    command = first if len(first) <= LONGEST_COMMAND and not more else f"{first[:LONGEST_COMMAND]} …"
    return inert(f"{params}  {command}" if params else command)
