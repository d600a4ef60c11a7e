"""Wiring: put the parts of a coordinator together, and close them in the right order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from deborgen_coordinator.blobs import BlobStore
from deborgen_coordinator.blobs.local import LocalBlobs
from deborgen_coordinator.clock import Clock, SystemClock
from deborgen_coordinator.disk_reserve import DiskReserve
from deborgen_coordinator.http.application import Application
from deborgen_coordinator.http.streams import Streams
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.operations.history import HistoryLog, log_committed
from deborgen_coordinator.operations.maintenance.lease_check import LeaseChecker
from deborgen_coordinator.operations.metrics import CoordinatorMetrics
from deborgen_coordinator.operations.wakeups import Wakeups
from deborgen_coordinator.secret_keys import SecretKeys
from deborgen_coordinator.settings import CoordinatorSettings
from deborgen_coordinator.storage.database import Row
from deborgen_coordinator.storage.store import Store
from deborgen_coordinator.web import dashboard as web


def open_context(
    settings: CoordinatorSettings, clock: Clock | None = None, log: Callable[[list[Row]], None] = log_committed
) -> Context:
    """Open the database and the blobs for operations. Close them with `context.store.close()`.

    `log` gets the events of each commit."""
    wakeups = Wakeups(settings.max_waiters)
    metrics = CoordinatorMetrics()

    def note_events(events: list[Row]) -> None:
        metrics.count_events(events)
        log(events)

    store = Store(settings.database, Path(settings.data_dir), wakeups.notify, note_events)
    clock = clock or SystemClock()
    return Context(
        settings=settings,
        store=store,
        blobs=_blobs(settings, store, clock),
        secret_keys=SecretKeys(settings.secret_key_path),
        clock=clock,
        wakeups=wakeups,
        metrics=metrics,
    )


def _blobs(settings: CoordinatorSettings, store: Store, clock: Clock) -> BlobStore:
    address = settings.bucket
    if address is None:
        return LocalBlobs(settings.blob_dir)
    if find_spec("boto3") is None:
        raise ValueError("an object store needs boto3: install deborgen-coordinator with its extra s3")
    from deborgen_coordinator.blobs.bucket import Bucket
    from deborgen_coordinator.blobs.s3 import S3Blobs
    from deborgen_coordinator.operations.direct_uploads import announce

    begin = partial(announce, store, clock, "")
    return S3Blobs(settings.blob_dir, Bucket(address), settings.s3_part_size, begin)


@dataclass
class RunningCoordinator:
    """A running coordinator, without its sockets."""

    ctx: Context
    flask: Application
    streams: Streams
    lease_checker: LeaseChecker
    history_log: HistoryLog

    def hang_up(self) -> None:
        """Answer all waiting requests and end all streams. Other requests still work."""
        self.streams.close()
        self.ctx.wakeups.close()

    def close(self) -> None:
        self.hang_up()
        self.lease_checker.stop()
        self.ctx.store.close()
        self.history_log.stop()


def create_app(settings: CoordinatorSettings, clock: Clock | None = None) -> RunningCoordinator:
    """Start all parts of a coordinator in this process."""
    history_log = HistoryLog()
    ctx = open_context(settings, clock, history_log.add)
    streams = Streams(ctx)
    lease_checker = LeaseChecker(ctx)
    lease_checker.start()
    reserve = DiskReserve(Path(settings.data_dir), settings.disk_reserve if settings.uses_sqlite else 0)
    flask = Application(ctx, streams, reserve)
    web.serve_on(flask, ctx, streams, reserve)
    return RunningCoordinator(ctx, flask, streams, lease_checker, history_log)
