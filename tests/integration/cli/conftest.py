"""A real pool for the tests of the command: a coordinator, a worker, and people with their own home folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.coordinator import CoordinatorProcess
from support.person import DEBORGEN, Person
from support.pool import Pool

from .screen import Open, Terminal


@contextmanager
def pool_with_a_box(folder: Path) -> Iterator[Pool]:
    """A pool with one worker, `box`, which runs plain processes on two processors."""
    with Pool(CoordinatorProcess(folder, heartbeat_seconds=1, lease_seconds=20)) as pool:
        pool.add_worker("box", cpus=2, memory="4GiB", drain_grace="1s")
        yield pool


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool that the tests of this folder share. It is cleaned up after each test."""
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
    """A person with an empty home folder, who knows no coordinator."""
    return Person(tmp_path / "stranger")


@pytest.fixture
def terminal(anna: Person) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(*words: str, **environment: str) -> Terminal:
        opened.append(Terminal([str(DEBORGEN), *words], anna.folder, {**anna.environment, **environment}))
        return opened[-1]

    yield start
    for each in opened:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        each.close()


@pytest.fixture(autouse=True)
def _own_environment() -> None:
    for name in [name for name in os.environ if name.startswith("DEBORGEN_")]:
        del os.environ[name]


@pytest.fixture(autouse=True)
def _clean_up_after_each_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clean up after a test that leaves jobs, a paused worker or a killed coordinator in the shared pool."""
    shared: Pool | None = request.getfixturevalue("pool") if "pool" in request.fixturenames else None
    yield
    if shared is not None:
        shared.clear()
