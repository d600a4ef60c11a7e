"""deborgen results"""

from __future__ import annotations

import click

from deborgen import output
from deborgen.cli import App, json_option, verb
from deborgen.results import Results, Row
from deborgen.runs import Run
from deborgen_shared.states import State

#: Columns whose smallest value is the best.
SMALLER_IS_BETTER = frozenset({"error", "err", "loss", "cost", "rmse", "mse", "mae", "residual"})


@verb(name="results")
@click.argument("ref", metavar="[RUN]", default="last")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
@click.option("--sort", "sort", metavar="KEY", help="Sort by a column; -KEY sorts the largest first.")
@click.option("--best", metavar="KEY[:min|max]", help="Only the row with the smallest (or largest) value of a column.")
def command(app: App, ref: str, as_csv: bool, as_json: bool, sort: str | None, best: str | None) -> None:
    """Print the results table of a run.

    There is one row per job: its state, its parameters, the values that it wrote to $DEBORGEN_RESULT, how many
    seconds it took, and its worker.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json cannot be used together.")
    run = app.client.run(ref)
    table = run.results()
    if sort:
        table = table.sorted_by(sort.removeprefix("-"), reverse=sort.startswith("-"))
    if best:
        key = best[: -len(":min")] if best.endswith((":min", ":max")) else best
        row = table.best(key, "max" if best.endswith(":max") else "min")
        table = Results([row] if row else [], table.columns)
    if as_json:
        output.json("results", {"run": run.id, "columns": table.columns, "rows": list(table)})
    elif as_csv:
        output.write(table.to_csv())
    else:
        _print(run, table)


def _print(run: Run, table: Results) -> None:
    columns = table.columns
    plain = [[row.get(name) for name in columns] for row in table]
    if not output.on_terminal():
        output.table(columns, plain)
        return
    # Hide empty columns to leave room for the others.
    shown = [name for name in columns if name in ("job", "state") or any(row.get(name) is not None for row in table)]
    numeric = [name for name in shown if all(_is_number(row.get(name)) for row in table)]
    output.table(shown, [[_short(name, row) for name in shown] for row in table], numeric=numeric)
    counts = run.counts
    open_jobs = counts[State.QUEUED] + counts[State.RUNNING]
    if open_jobs:
        output.hint(f"{output.counted(open_jobs, 'job')} not finished yet: deborgen watch {run.id}")
    smaller = next((name for name in columns if name.removeprefix("result.") in SMALLER_IS_BETTER), None)
    if len(table) > 1 and smaller:
        output.hint(f"the best: deborgen results {run.id} --best {smaller}:min")


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _short(name: str, row: Row) -> str:
    value = row.get(name)
    if name == "seconds" and isinstance(value, int | float):
        return f"{value:.2f}"
    return f"{value:.6g}" if isinstance(value, float) else output.cell(value)
