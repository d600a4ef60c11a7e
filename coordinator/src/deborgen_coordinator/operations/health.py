"""Whether the coordinator can do its work: a transaction that writes goes through."""

from __future__ import annotations

from ..storage import workers
from .context import Context


def check(ctx: Context) -> None:
    """Raise if the database cannot be written."""
    ctx.store.write(workers.probe)
