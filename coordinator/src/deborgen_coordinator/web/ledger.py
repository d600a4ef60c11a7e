"""The ledger."""

from __future__ import annotations

from deborgen_coordinator.operations import ledger as ledgers
from deborgen_coordinator.web import figures
from deborgen_coordinator.web.charts.svg import Numbers
from deborgen_coordinator.web.pages import PageRequest, page
from deborgen_coordinator.web.rendering import HtmlAnswer
from deborgen_shared.ledger_table import COLUMNS, rows
from deborgen_shared.queries import LedgerQuery


@page("/ledger")
def ledger(request: PageRequest) -> HtmlAnswer:
    query = request.read(LedgerQuery)
    found = ledgers.ledger(request.ctx, query)
    names = [name for name in ("person", "machine") if query.by in (name, "both")]
    return request.render("ledger.html", ledger=found, by=query.by, names=names, parts_shown=PARTS)


#: The parts of the ledger, and what they are in words.
PARTS = {"given": "given to others", "used": "used of others", "own": "own jobs on own machines"}


@page("/ledger.csv")
def ledger_csv(request: PageRequest) -> HtmlAnswer:
    found = ledgers.ledger(request.ctx, request.read(LedgerQuery))
    table = Numbers(list(COLUMNS), [list(row.values()) for row in rows(found)])
    return figures.table_as_csv(table, "ledger")
