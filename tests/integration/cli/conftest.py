"""A real pool for the command: a coordinator, a worker, and persons with a home of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.coordinator import CoordinatorProcess
from support.person import Person
from support.pool import Pool


@contextmanager
def pool_with_a_box(folder: Path) -> Iterator[Pool]:
    """A pool with one worker, `box`, that runs plain processes on two slots."""
    with Pool(CoordinatorProcess(folder, heartbeat_seconds=1, lease_seconds=20)) as pool:
        pool.add_worker("box", cpus=2, memory="4GiB", drain_grace="1s")
        yield pool


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool that the tests of this folder share. After each of them it is made free for the next."""
    with pool_with_a_box(tmp_path_factory.mktemp("pool")) as pool:
        yield pool


@pytest.fixture(scope="package")
def anna(pool: Pool) -> Person:
    return pool.person("anna")


@pytest.fixture(scope="package")
def admin(pool: Pool) -> Person:
    return pool.person("root", "admin")


@pytest.fixture
def stranger(tmp_path: Path) -> Person:
    """Somebody with an empty home, who knows no coordinator."""
    return Person(tmp_path / "stranger")


@pytest.fixture(autouse=True)
def _own_environment() -> None:
    for name in [name for name in os.environ if name.startswith("DEBORGEN_")]:
        del os.environ[name]


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that leaves jobs, a paused worker or a killed coordinator in a shared pool does no harm to the next."""
    shared: Pool | None = request.getfixturevalue("pool") if "pool" in request.fixturenames else None
    yield
    if shared is not None:
        shared.clear()
