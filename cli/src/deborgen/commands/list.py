"""deborgen list"""

from __future__ import annotations

import click

from deborgen import output
from deborgen.cli import App, json_option, verb
from deborgen_shared.states import State

COLUMNS = ["run", "name", "state", "done", "jobs", "failed", "submitter", "created"]


@verb(name="list")
@click.option("--state", type=click.Choice([str(each) for each in State]), help="Only runs in this state.")
@click.option("--submitter", metavar="NAME", help="Only runs of this person.")
@click.option("--label", metavar="KEY=VALUE", help="Only runs with this label.")
@click.option(
    "-n", "--limit", default=20, show_default=True, type=click.IntRange(1), metavar="N", help="Show at most N runs."
)
@json_option
def command(app: App, state: str | None, submitter: str | None, label: str | None, limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    runs = list(app.client.runs(state=state, submitter=submitter, label=label, limit=limit))
    if as_json:
        output.json("runs", [run.data for run in runs])
        return
    rows = []
    for run in runs:
        failed, data = run.counts[State.FAILED], run.data
        rows.append([run.id, run.name, run.state, run.done, run.total, failed, data.submitter, data.created_at])
    shown = {"failed": lambda count: count or "", "created": output.age}
    output.table(
        COLUMNS,
        rows,
        shown=shown,
        numeric=["run", "done", "jobs", "failed"],
        text=["name"],
        spare=["submitter", "created"],
    )
    if not runs:
        output.hint(_nothing_found(state, submitter, label))


def _nothing_found(state: str | None, submitter: str | None, label: str | None) -> str:
    if label and "=" not in label:
        return f"no run has a label called '{label}'. To find a label by its value: --label NAME=VALUE"
    wanted = {"state": state, "submitter": submitter, "label": label}
    filters = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
    return f"no run matches: {filters}" if filters else "no runs yet. Next: deborgen submit FILE"
