"""One browser, and one pool with a worker, which the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.tab import open_browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    coordinator = CoordinatorProcess(tmp_path_factory.mktemp("pool"), heartbeat_seconds=0.5, lease_seconds=20)
    with Pool(coordinator) as pool:
        pool.add_worker("box", cpus=2, memory="4GiB", drain_grace="1s")
        yield pool
