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
    wanted = app.client.named(ref).wanted()
    if as_json:
        items = [{"job": w.job, "path": w.path, "sha256": w.sha256, "size": w.size} for w in wanted]
        output.json("artifacts", items)
        return
    rows = [[w.job, w.path, w.size, w.sha256] for w in wanted]
    output.table(COLUMNS, rows, shown={"size": output.size, "sha256": lambda digest: digest[:12]}, numeric=["size"])
    output.hint(f"fetch them: deborgen artifacts pull {ref}" if wanted else "no artifacts")


@verb(command.command, name="pull")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@click.option(
    "-o", "--into", type=click.Path(path_type=Path), metavar="DIR", help="Folder to fetch into. [default: NAME-RUN]"
)
def pull(app: App, ref: str, into: Path | None) -> None:
    """Fetch the artifacts of a run or a job.

    Downloads run in parallel and can be resumed: files that you already have are not fetched again. Every digest is
    checked. If a run has several jobs, each gets a folder named by its index. Prints the paths of the files.
    """
    what = app.client.named(ref)
    wanted = what.wanted()
    target = into or Path(what.folder())
    if not wanted:
        output.hint("no artifacts")
        return
    with output.bar("fetching", sum(w.size for w in wanted)) as on_bytes:
        paths = transfers.pull(app.client.connection, wanted, target, on_bytes)
    output.write("".join(f"{path}\n" for path in paths))
    output.hint(f"{output.counted(len(paths), 'file')} in {target}/")
