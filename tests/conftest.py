"""Rules for every test: how the suite is spread over processes, where it writes, and how its children take signals."""

from __future__ import annotations

import os
import shutil
import signal
import zlib
from pathlib import Path
from typing import Any

import pytest
from _pytest.nodeid import coerce_node_id
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from support.worker import open_for_jobs

#: Files whose tests cannot run beside each other, because they build the same images. One process runs them in order.
SHARED_IMAGES = ("tests/chaos/test_compose.py", "tests/chaos/test_containers.py")
#: The files that take longest, longest first: they start first, so that none is left to run alone at the end.
LONGEST = (
    *SHARED_IMAGES,
    "tests/contract/coordinator/test_machine.py",
    "tests/integration/cli/test_readme.py",
    "tests/integration/server/test_kill.py",
    "tests/integration/cli/test_command_blocks.py",
    "tests/integration/cli/test_up.py",
    "tests/simulation/test_simulation.py",
    "tests/chaos/test_worker_faults.py",
    "tests/integration/worker/test_restarts.py",
    "tests/integration/worker/test_containers.py",
    "tests/integration/cli/test_look.py",
    "tests/integration/cli/test_act.py",
    "tests/integration/worker/test_owner.py",
    "tests/integration/worker/test_network.py",
    "tests/integration/server/test_postgres.py",
    "tests/integration/server/test_lost_answers.py",
    "tests/integration/test_packages.py",
)


#: With this much memory to spare the tests keep their files in it. On a disk every commit has to wait.
MEMORY_FOR_FILES = 8 << 30
IN_MEMORY = Path("/dev/shm")
#: The name of a folder there, which no other copy of the repository uses at the same time.
OURS = f"d-{zlib.crc32(os.fsencode(__file__)):08x}"


def pytest_configure() -> None:
    if IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > MEMORY_FOR_FILES:
        (IN_MEMORY / OURS).mkdir(exist_ok=True)
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY / OURS))
    take_default_signals()
    # A busy machine is slow to draw examples and to run them. Neither says anything about the product.
    settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy machine")


def take_default_signals() -> None:
    """Let Ctrl-C work in the programs that the tests start.

    A shell starts a background job with SIGINT and SIGQUIT ignored, and every child process inherits that. A signal
    with a handler, in contrast, has its default effect in a new program.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """One process runs all tests of a file, because they share coordinators, workers and databases.

    The mode `loadgroup` of pytest-xdist would do the same by marks, but pytest 9.2 ignores the names that it gives.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return SHARED_IMAGES[0] if file in SHARED_IMAGES else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tell_apart(items)
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(file_of(item.nodeid), len(order)))


def tell_apart(items: list[pytest.Item]) -> None:
    """Give each test an id of its own: of several with one id, only one would be run where tests are spread.

    The tests that schemathesis makes, one per call of the contract, all come with the id of their function.
    """
    seen: set[str] = set()
    for item in items:
        if not item.nodeid.endswith(item.name) and item.parent is not None:
            item._id = coerce_node_id(f"{item.parent.nodeid}::{item.name}")
        if item.nodeid in seen:
            raise pytest.UsageError(f"two tests have the id {item.nodeid}")
        seen.add(item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def _open_for_jobs(tmp_path_factory: pytest.TempPathFactory) -> None:
    open_for_jobs(tmp_path_factory.getbasetemp())


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """The folder of a test. Jobs may leave their marks in it, although a root worker runs them as other users."""
    open_for_jobs(tmp_path.parent)
    tmp_path.chmod(0o777)
    return tmp_path
