"""The ledger."""

from __future__ import annotations

from deborgen_coordinator.http.routes import CallRequest, serves
from deborgen_coordinator.operations import ledger as ledgers
from deborgen_shared import contract
from deborgen_shared import messages as m
from deborgen_shared.queries import LedgerQuery


@serves(contract.LEDGER)
def ledger(request: CallRequest[None, LedgerQuery]) -> m.PoolLedger:
    return ledgers.ledger(request.ctx, request.query)
