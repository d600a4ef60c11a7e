"""A story is a module of steps on a fleet of its own: each step continues where the step before it ended.

Stories share no host, so pytest-xdist runs them side by side, one module in one process (`--dist loadfile`). A module
with a story names its PCs in WORKERS, with what the inventory says about each.
"""

from __future__ import annotations

import os
import pickle
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from fleet.pool import FleetPool
from support.hosts import why_no_hosts

#: The first failed step of each story.
failed_steps: dict[str, str] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "fleet_pool" in getattr(item, "fixturenames", ()):
        failed_steps.setdefault(item.path.stem, item.name)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the stories first, because they take longest; the other tests run beside the longer story."""
    items.sort(key=lambda item: "fleet_pool" not in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how long the plays and the modules took. No test fails by it; benchmarks/fleet_plays.py measures."""
    seconds: dict[str, float] = defaultdict(float)
    for report in [report for reports in terminalreporter.stats.values() for report in reports]:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
            for name, line in report.user_properties if report.when == "call" else ():
                if name == "figure":
                    terminalreporter.write_line(str(line))
    for module, total in sorted(seconds.items(), key=lambda each: -each[1]):
        terminalreporter.write_line(f"{module:<40} {total / 60:5.1f} minutes")


# While you work on a step: with DEBORGEN_FLEET_KEEP=FOLDER the hosts stay, and the next run continues with them.
@pytest.fixture(scope="module")
def fleet_pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetPool]:
    if reason := why_no_hosts():
        pytest.skip(reason)
    pytest.importorskip("ansible", reason="the fleet was not tested: ansible is missing; `make fleet` installs it")
    story = request.path.stem
    kept = Path(os.environ["DEBORGEN_FLEET_KEEP"]) / story if "DEBORGEN_FLEET_KEEP" in os.environ else None
    if kept is not None and kept.with_suffix(".pickle").exists():
        pool = pickle.loads(kept.with_suffix(".pickle").read_bytes())
    else:
        pool = FleetPool(kept if kept is not None else tmp_path_factory.mktemp(story))
    try:
        if not pool.fleet.hosts:
            pool.boot(request.module.WORKERS)
        yield pool
    finally:
        if kept is not None:
            pool.fleet.keep()
            kept.with_suffix(".pickle").write_bytes(pickle.dumps(pool))
        else:
            pool.fleet.remove()


@pytest.fixture
def pool(request: pytest.FixtureRequest, fleet_pool: FleetPool) -> FleetPool:
    """The fleet as the earlier steps left it. After a failed step, later steps of its story would only fail too."""
    if earlier := failed_steps.get(request.path.stem):
        pytest.fail(f"not tried, because an earlier step of this story failed: {earlier}", pytrace=False)
    return fleet_pool
