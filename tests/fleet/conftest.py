"""One fleet for all steps: a droplet, PCs and a laptop, joined by WireGuard and by the playbooks of this checkout."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.pool import Play, Pool, figures
from support.hosts import why_not

failed_steps: list[str] = []
timed: dict[str, Play] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed and "pool" in getattr(item, "fixturenames", ()):
        failed_steps.append(item.name)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Figures are shown, and no test fails by them: see benchmarks/fleet_plays.py for a quiet machine."""
    for line in figures(timed):
        terminalreporter.write_line(line)


# While working on a step: with DEBORGEN_FLEET_KEEP=FILE the hosts stay, and the next run goes on with them.
@pytest.fixture(scope="session")
def fleet_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    if reason := why_not():
        pytest.skip(reason)
    pytest.importorskip("ansible", reason="the fleet was not tested: ansible is missing; `make fleet` installs it")
    kept = Path(os.environ["DEBORGEN_FLEET_KEEP"]) if "DEBORGEN_FLEET_KEEP" in os.environ else None
    if kept is not None and kept.exists():
        pool = pickle.loads(kept.read_bytes())
    else:
        pool = Pool(kept.with_suffix(".d") if kept is not None else tmp_path_factory.mktemp("fleet"))
    try:
        if not pool.fleet.hosts:
            pool.boot()
        yield pool
    finally:
        timed.update(pool.timed)
        if kept is not None:
            kept.write_bytes(pickle.dumps(pool))
        else:
            pool.fleet.remove()


@pytest.fixture
def pool(fleet_pool: Pool) -> Pool:
    """The fleet as the steps before have left it. After a failed step the others would only repeat its news."""
    if failed_steps:
        pytest.fail(f"not tried, because an earlier step failed: {failed_steps[0]}", pytrace=False)
    return fleet_pool
