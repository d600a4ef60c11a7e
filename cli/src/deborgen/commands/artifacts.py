"""deborgen artifacts"""

from __future__ import annotations

from pathlib import Path

import click

from deborgen import output, transfers
from deborgen.cli import CONTEXT, App, json_option, verb

COLUMNS = ["job", "path", "size", "sha256"]


@click.group(name="artifacts", context_settings=CONTEXT)
def command() -> None:
    """List and fetch the files that jobs made."""


@verb(command.command, name="list")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@json_option
def list_(app: App, ref: str, as_json: bool) -> None:
    """List the artifacts of a run or a job."""
    artifacts = app.client.named(ref).artifacts_to_fetch()
    if as_json:
        items = [{"job": each.job, "path": each.path, "sha256": each.sha256, "size": each.size} for each in artifacts]
        output.json("artifacts", items)
        return
    rows = [[each.job, each.path, each.size, each.sha256] for each in artifacts]
    shown = {"size": output.size, "sha256": lambda digest: digest[:12]}
    output.table(COLUMNS, rows, shown=shown, numeric=["size"], text=["path"], spare=["sha256"])
    output.hint(f"fetch them: deborgen artifacts pull {ref}" if artifacts else "no artifacts")


@verb(command.command, name="pull")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@click.option(
    "-o",
    "--into",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder to fetch into. [default: NAME-ID for a run, job-ID for a job]",
)
def pull(app: App, ref: str, into: Path | None) -> None:
    """Fetch the artifacts of a run or a job.

    Downloads run in parallel and can be resumed: files that you already have are not fetched again. Every digest is
    checked. If a run has several jobs, each gets a folder named by its index. Prints the paths of the files.
    """
    what = app.client.named(ref)
    artifacts = what.artifacts_to_fetch()
    target = into or Path(what.folder())
    if not artifacts:
        output.hint("no artifacts")
        return
    with output.bar("fetching", sum(each.size for each in artifacts)) as on_bytes:
        paths = transfers.pull(app.client.connection, artifacts, target, on_bytes)
    output.write("".join(f"{path}\n" for path in paths))
    output.hint(f"{output.counted(len(paths), 'file')} in {target}/")
