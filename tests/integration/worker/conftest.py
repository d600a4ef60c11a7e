"""A coordinator with short leases for the tests of a module, and workers that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.coordinator import CoordinatorProcess
from support.podman import CONF, Podman, podman, podman_ready
from support.pool import Pool
from support.worker import WorkerProcess

__all__ = ["podman", "podman_ready"]

HEARTBEAT = 0.5


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    folder = tmp_path_factory.mktemp("coordinator")
    with CoordinatorProcess(folder, lease_seconds=20, heartbeat_seconds=HEARTBEAT) as process:
        yield process


@pytest.fixture
def pool(coordinator: CoordinatorProcess) -> Pool:
    return Pool(coordinator)


@pytest.fixture
def new_worker(coordinator: CoordinatorProcess, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Makes workers. Their programs are ended with the test."""
    made: list[WorkerProcess] = []

    def make(**settings: Any) -> WorkerProcess:
        worker = WorkerProcess(tmp_path, settings.pop("coordinator", coordinator), **settings)
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.stop()


@pytest.fixture
def container_worker(
    new_worker: Callable[..., WorkerProcess], podman: Podman
) -> Iterator[Callable[..., WorkerProcess]]:
    """Makes workers that run containers on the test's own service. None of their containers is left behind."""
    made: list[WorkerProcess] = []

    def make(**settings: Any) -> WorkerProcess:
        settings = {"runner": "podman", "podman_socket": str(podman.socket), **settings}
        env = {"CONTAINERS_CONF": str(CONF), **settings.pop("env", {})}
        worker = new_worker(env=env, **settings)
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.stop()
        podman.remove_all(worker.name)
