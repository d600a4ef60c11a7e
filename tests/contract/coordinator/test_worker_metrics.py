"""The metrics of a worker's machine: reported when it registers and with its heartbeats, and shown with the worker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deborgen_coordinator.operations.workers.look import get_worker, list_workers
from deborgen_shared import messages as m
from support.in_process import InProcessCoordinator

FULL = m.Metrics(
    load=1.5,
    memory_free=3 << 30,
    disk_free=40 << 30,
    temperature=61.5,
    gpus=[m.GpuMetrics(name="NVIDIA GeForce RTX 4090", memory_free=20 << 30, busy=0.25), m.GpuMetrics(name="other")],
)


def shown(pool: InProcessCoordinator) -> m.Metrics | None:
    return get_worker(pool.ctx, "pc1").metrics


def test_metrics_are_shown_as_they_were_reported(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    assert shown(pool) is None
    worker.beat(metrics=FULL)
    assert shown(pool) == FULL
    assert list_workers(pool.ctx).items[0].metrics == FULL
    worker.beat(metrics=m.Metrics(load=0.25))
    assert shown(pool) == m.Metrics(load=0.25), "the newest ones count, all of them"


def test_a_heartbeat_without_metrics_keeps_the_last_ones(pool: InProcessCoordinator) -> None:
    """Seen to fail when a heartbeat without metrics deletes the stored ones."""
    worker = pool.worker()
    worker.beat(metrics=FULL)
    worker.beat()
    assert shown(pool) == FULL


def test_a_registration_reports_the_metrics_of_its_session(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    worker.register(metrics=FULL)
    assert shown(pool) == FULL
    worker.restart()
    assert shown(pool) is None, "a worker that went back to a release without metrics shows none"


def test_metrics_outlive_a_restart_of_the_coordinator_and_a_silence(pool: InProcessCoordinator) -> None:
    pool.worker().beat(metrics=FULL)
    pool.restart()
    pool.sleep(300)
    assert get_worker(pool.ctx, "pc1").availability == "offline"
    assert shown(pool) == FULL


@pytest.mark.parametrize("metrics", [{}, {"gpus": []}, {"load": 0}, {"load": None, "gpus": [{}]}, {"fan": 900}])
def test_all_metrics_are_optional_and_unknown_ones_are_ignored(
    pool: InProcessCoordinator, metrics: dict[str, Any]
) -> None:
    worker = pool.worker()
    worker.beat(metrics=msgspec.convert(metrics, m.Metrics))
    assert shown(pool) == msgspec.convert(metrics, m.Metrics)
