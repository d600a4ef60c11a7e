"""deborgen results"""

from __future__ import annotations

from typing import Any

import click

from deborgen import groups, output
from deborgen.cli import App, json_option, verb
from deborgen.click_types import pair
from deborgen.errors import WrongUsage
from deborgen.results import Results, Row
from deborgen.runs import Run
from deborgen_shared.results_table import AFTER, SMALLER_IS_BETTER, to_wire
from deborgen_shared.states import State
from deborgen_shared.terminal import inert

#: On a terminal, a fraction of more than this many characters is rounded.
LONGEST_NUMBER = 10


@verb(name="results")
@click.argument("ref", metavar="[RUN]", default="last")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
@click.option("--sort", "sort", metavar="KEY", help="Sort by a column; -KEY sorts the largest first.")
@click.option("--best", metavar="KEY[:min|max]", help="Only the row with the smallest (or largest) value of a column.")
@click.option(
    "--where",
    multiple=True,
    type=pair,
    metavar="KEY=VALUE",
    help="Only rows with this value in a column. May be repeated.",
)
@click.option("--failed", is_flag=True, help="Only jobs that failed.")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="Only the first N rows.")
@click.option("--columns", metavar="KEY,…", help="Only these columns, in this order.")
@click.option("--no-retries", is_flag=True, help="Only the jobs of this run, without successful retries of them.")
def command(app: App, ref: str, as_csv: bool, as_json: bool, **options: Any) -> None:
    """Print the results table of a run.

    There is one row per job: its state, its parameters, the values that it wrote to $DEBORGEN_RESULT, how many
    seconds it took, and its worker. If a job was retried with success, its newest successful retry is shown instead,
    and the column `retry_of` names the job.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json cannot be used together.")
    run = app.client.run(ref)
    best, limit, columns = (options.pop(name) for name in ("best", "limit", "columns"))
    table = _chosen(run.results(retries=not options.pop("no_retries")), **options)
    if best:
        key = best[: -len(":min")] if best.endswith((":min", ":max")) else best
        row = table.best(key, "max" if best.endswith(":max") else "min")
        if row is None:
            raise WrongUsage(
                f"no row has a number in the column {key!r}", "--best compares numbers; --sort also sorts text"
            )
        table = Results([row], table.columns)
    if limit:
        table = table.first(limit)
    if columns:
        table = table.only(name.strip() for name in columns.split(","))
    if as_json:
        rows = [{name: to_wire(value) for name, value in row.items()} for row in table]
        output.json("results", {"run": run.id, "commit": run.commit, "columns": table.columns, "rows": rows})
    elif as_csv:
        output.write(table.to_csv())
    else:
        _print(run, table)
    for line in groups.lines(run.overview().warnings):
        output.say(f"warning: {line}")


def _chosen(table: Results, where: tuple[tuple[str, str], ...], failed: bool, sort: str | None) -> Results:
    """The rows that the options ask for, in their order."""
    if failed:
        table = table.where("state", State.FAILED)
    for key, value in where:
        table = table.where(key, value)
    return table.sorted_by(sort.removeprefix("-"), reverse=sort.startswith("-")) if sort else table


def _print(run: Run, table: Results) -> None:
    columns = table.columns
    plain = [[row.get(name) for name in columns] for row in table]
    if not output.on_terminal():
        output.table(columns, plain)
        return
    if run.source():
        output.write(f"workspace: {inert(run.source())}\n")
    numeric = [name for name in columns if all(_is_number(row.get(name)) for row in table)]
    text = [name for name in columns if name not in (*numeric, "job", "retry_of", "state")]
    lines = [[_short(name, row) for name in columns] for row in table]
    # On a narrow terminal, the columns after the results are left out first, starting with the last one.
    output.table(columns, lines, numeric=numeric, text=text, spare=AFTER[::-1])
    if not table:
        output.hint(f"no job of run {run.id} matches")
    counts = run.counts
    open_jobs = counts[State.QUEUED] + counts[State.RUNNING]
    if open_jobs:
        output.hint(f"{output.counted(open_jobs, 'job')} not finished yet: deborgen watch {run.id}")
    smaller = next((name for name in columns if name.removeprefix("result.") in SMALLER_IS_BETTER), None)
    if len(table) > 1 and smaller and table.best(smaller):
        output.hint(f"the best: deborgen results {run.id} --best {smaller}:min")


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _short(name: str, row: Row) -> str:
    value = row.get(name)
    if name == "seconds" and isinstance(value, int | float):
        return f"{value:.2f}"
    if isinstance(value, float) and len(repr(value)) > LONGEST_NUMBER:
        # Six significant digits, and never fewer digits than the number has before its point.
        return f"{value:.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
    return output.cell(value)
