"""Wiring: it puts the parts of a coordinator together, and closes them in the right order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deborgen_coordinator.blobs.local import LocalBlobs
from deborgen_coordinator.clock import Clock, SystemClock
from deborgen_coordinator.disk_reserve import DiskReserve
from deborgen_coordinator.http.application import Application
from deborgen_coordinator.http.streams import Streams
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.operations.history import log_committed
from deborgen_coordinator.operations.maintenance.lease_check import LeaseChecker
from deborgen_coordinator.operations.metrics import CoordinatorMetrics
from deborgen_coordinator.operations.wakeups import Wakeups
from deborgen_coordinator.settings import Settings
from deborgen_coordinator.storage.database import Row
from deborgen_coordinator.storage.store import Store


def open_context(settings: Settings, clock: Clock | None = None) -> Context:
    """Open the database and the blobs for operations. Close it with `context.store.close()`."""
    wakeups = Wakeups(settings.max_waiters)
    metrics = CoordinatorMetrics()

    def recorded(events: list[Row]) -> None:
        metrics.recorded(events)
        log_committed(events)

    store = Store(settings.database, Path(settings.data_dir), wakeups.notify, recorded)
    return Context(
        settings=settings,
        store=store,
        blobs=LocalBlobs(settings.blob_dir),
        clock=clock or SystemClock(),
        wakeups=wakeups,
        metrics=metrics,
    )


@dataclass
class RunningCoordinator:
    """A running coordinator, without its sockets."""

    ctx: Context
    flask: Application
    streams: Streams
    lease_checker: LeaseChecker

    def hang_up(self) -> None:
        """Answer all waiting requests and end all streams. Other requests still work."""
        self.streams.close()
        self.ctx.wakeups.close()

    def close(self) -> None:
        self.hang_up()
        self.lease_checker.stop()
        self.ctx.store.close()


def create_app(settings: Settings, clock: Clock | None = None) -> RunningCoordinator:
    """Start all parts of a coordinator in this process."""
    ctx = open_context(settings, clock)
    streams = Streams(settings.max_streams, settings.max_transfers)
    lease_checker = LeaseChecker(ctx)
    lease_checker.start()
    reserve = DiskReserve(Path(settings.data_dir), settings.disk_reserve if settings.uses_sqlite else 0)
    return RunningCoordinator(ctx, Application(ctx, streams, reserve), streams, lease_checker)
