"""A row of the table behind `make seen-to-fail`. A *bug* is planted in the product; a *fault* happens to it."""

from __future__ import annotations

from typing import NamedTuple

from planted.patch import Patch

#: How the names of many tests begin: the file, and the start of the function's name.
CHAOS = "chaos/test_coordinator_faults.py::test_fault"
INPUT = "chaos/test_disk_and_input_faults.py::test_fault"
LIVE = "chaos/test_worker_faults.py::test_fault"
STORAGE = "contract/coordinator/test_storage.py::test_fault"
BLOBS = "contract/http/test_blob_store.py::test_fault"
HTTP_BLOBS = "contract/http/test_blobs.py::test_fault"
STRICT = "contract/http/test_strict_input.py::test_fault"
HTTP_LOGS = "contract/http/test_logs_and_events.py::test_fault"
SERVER = "integration/server"
CONTAINERS = "integration/worker/test_containers.py::test_fault"
NETWORK = "integration/worker/test_network.py::test_fault"
RESTARTS = "integration/worker/test_restarts.py::test_fault"


class Planted(NamedTuple):
    """A planted bug: how a promise is broken, in words and in code; the tests that must fail, a pattern that their
    output must match, and how many seconds each of them may take."""

    broken: str
    patches: tuple[Patch, ...]
    tests: tuple[str, ...]
    says: str = r"AssertionError|assert |DID NOT RAISE"
    seconds: int = 120
