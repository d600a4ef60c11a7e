"""deborgen ledger"""

from __future__ import annotations

from datetime import date
from typing import Literal

import click

from deborgen import output
from deborgen.cli import App, json_option, verb
from deborgen.errors import WrongUsage
from deborgen_shared import contract
from deborgen_shared.ledger_table import COLUMNS, rows
from deborgen_shared.messages import LedgerRow
from deborgen_shared.queries import LedgerQuery
from deborgen_shared.results_table import csv_of

#: What a terminal shows: each column, with the part of the ledger and the kind of hours in it.
SHOWN = {
    f"{part} {words}": (part, kind)
    for part in ("given", "used", "own")
    for kind, words in (("core_hours", "core h"), ("gpu_hours", "gpu h"), ("memory_gib_hours", "GiB h"))
}


def _day(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text is not None else None
    except ValueError:
        raise WrongUsage(f"'{text}' is not a day", "write a day as YEAR-MONTH-DAY, for example 2026-11-01") from None


@verb(name="ledger")
@click.option("--since", metavar="DAY", callback=_day, help="The first day, in UTC. The default is 30 days ago.")
@click.option(
    "--by", type=click.Choice(["person", "machine", "both"]), default="person", show_default=True,
    help="What a line is about.",
)  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@json_option
def command(
    app: App, since: date | None, by: Literal["person", "machine", "both"], as_csv: bool, as_json: bool
) -> None:
    """Show who gave and who used how many core, GPU and memory hours.

    The ledger limits nobody. A machine belongs to the person that its label `owner` names. Jobs of its owner cost
    nothing, and are counted apart, as `own`.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json cannot be used together.")
    ledger = app.client.connection.call(contract.LEDGER, query=LedgerQuery(since=since, by=by))
    if as_json:
        output.json("ledger", {"since": ledger.since, "items": ledger.items})
        return
    if as_csv:
        output.write("".join(csv_of(COLUMNS, rows(ledger))))
        return
    if not output.on_terminal():
        output.table(COLUMNS, [list(row.values()) for row in rows(ledger)])
        return
    names = [name for name in ("person", "machine") if by in (name, "both")]
    output.table(
        [*names, *SHOWN],
        [[*(getattr(row, name) for name in names), *_hours(row)] for row in ledger.items],
        numeric=list(SHOWN),
    )
    if not ledger.items:
        output.hint(f"no attempt has ended since {ledger.since}")


def _hours(row: LedgerRow) -> list[str]:
    """The hours that a terminal shows; nothing for none."""
    found = (getattr(getattr(row, part), kind) for part, kind in SHOWN.values())
    return [f"{value:,.1f}" if value else "" for value in found]
