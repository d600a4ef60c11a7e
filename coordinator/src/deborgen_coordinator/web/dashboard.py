"""The dashboard as a whole: importing it fills the table of pages."""

from __future__ import annotations

from deborgen_coordinator.disk_reserve import DiskReserve
from deborgen_coordinator.http.application import Application
from deborgen_coordinator.http.streams import Streams
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.web import (
    events,
    figures,
    jobs,
    ledger,
    live,
    me,
    now,
    pages,
    results,
    runs,
    sign_in,
    static_files,
    submit,
    workers,
)

#: One module per noun, as in `http/`.
MODULES = (sign_in, static_files, live, now, runs, jobs, workers, events, me, figures, ledger, results, submit)


def serve_on(app: Application, ctx: Context, streams: Streams, reserve: DiskReserve) -> None:
    """Serve the dashboard next to the API."""
    pages.register(app, ctx, streams, reserve)
