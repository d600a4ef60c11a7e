"""The ledger as a table. The command and the dashboard both print it."""

from __future__ import annotations

from typing import Any

from deborgen_shared.messages import LedgerRow, PoolLedger

PARTS = ("given", "used", "own")
KINDS = ("attempts", "hours", "core_hours", "gpu_hours", "memory_gib_hours")
#: One column per part and kind, for example `used_core_hours`.
COLUMNS = ("person", "machine", *(f"{part}_{kind}" for part in PARTS for kind in KINDS))


def rows(ledger: PoolLedger) -> list[dict[str, Any]]:
    """The lines of the ledger, with a value for each column."""
    return [_row(row) for row in ledger.items]


def _row(row: LedgerRow) -> dict[str, Any]:
    hours = {f"{part}_{kind}": getattr(getattr(row, part), kind) for part in PARTS for kind in KINDS}
    return {"person": row.person, "machine": row.machine, **hours}
