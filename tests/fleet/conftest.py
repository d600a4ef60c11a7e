"""One fleet for all steps: a droplet, PCs and a laptop, joined by WireGuard and by the playbooks of this checkout."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet.pool import Pool
from support.hosts import why_not

failed_steps: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed and "pool" in getattr(item, "fixturenames", ()):
        failed_steps.append(item.name)
    return report


@pytest.fixture(scope="session")
def fleet_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    if reason := why_not():
        pytest.skip(reason)
    pytest.importorskip("ansible", reason="the fleet was not tested: ansible is missing; `make fleet` installs it")
    pool = Pool(tmp_path_factory.mktemp("fleet"))
    try:
        pool.boot()
        yield pool
    finally:
        pool.fleet.remove()


@pytest.fixture
def pool(fleet_pool: Pool) -> Pool:
    """The fleet as the steps before have left it. After a failed step the others would only repeat its news."""
    if failed_steps:
        pytest.fail(f"not tried, because an earlier step failed: {failed_steps[0]}", pytrace=False)
    return fleet_pool
