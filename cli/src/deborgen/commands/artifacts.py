"""deborgen artifacts"""

from __future__ import annotations

from pathlib import Path

import click

from deborgen import output, refs
from deborgen.cli import CONTEXT, App, json_option, subcommand
from deborgen.downloads import Wanted

COLUMNS = ["job", "path", "size", "sha256"]


@click.group(name="artifacts", context_settings=CONTEXT)
def command() -> None:
    """List and fetch the files that jobs made."""


def _wanted(app: App, ref: str) -> tuple[list[Wanted], str]:
    """The artifacts of a run or job, and the folder that they go to by default."""
    named = refs.parse(ref)
    if named.index is None:
        run = app.client.run(ref)
        return run.wanted(), run.folder()
    job = app.client.job(ref)
    found = [Wanted(job.id, a.path, a.sha256, a.size, a.path) for a in job.artifacts()]
    return found, f"job-{job.id}"


@subcommand(command, name="list")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@json_option
def list_(app: App, ref: str, as_json: bool) -> None:
    """List the artifacts of a run or a job."""
    wanted, _ = _wanted(app, ref)
    if as_json:
        items = [{"job": w.job, "path": w.path, "sha256": w.sha256, "size": w.size} for w in wanted]
        output.json("artifacts", items)
        return
    rows = [[w.job, w.path, output.size(w.size), w.sha256[:12]] for w in wanted]
    output.table(COLUMNS, rows, full=[[w.job, w.path, w.size, w.sha256] for w in wanted], numeric=["size"])
    if wanted:
        output.hint(f"fetch them: deborgen artifacts pull {ref}")
    else:
        output.hint("no artifacts")


@subcommand(command, name="pull")
@click.argument("ref", metavar="[RUN|JOB]", default="last")
@click.option("-o", "--into", type=click.Path(path_type=Path), metavar="DIR", help="The folder. [default: NAME-RUN]")
def pull(app: App, ref: str, into: Path | None) -> None:
    """Fetch the artifacts of a run or a job.

    Several at once, resumable: what is there already is not fetched again. Every digest is checked. Where a run has
    several jobs, each gets a folder named by its index. Prints the paths of the files.
    """
    from deborgen import downloads
    from deborgen.progress import bar

    wanted, folder = _wanted(app, ref)
    target = into or Path(folder)
    if not wanted:
        output.hint("no artifacts")
        return
    with bar("fetching", sum(w.size for w in wanted)) as seen:
        paths = downloads.pull(app.client.connection, wanted, target, seen)
    output.write("".join(f"{path}\n" for path in paths))
    output.hint(f"{output.counted(len(paths), 'file')} in {target}/")
