"""The threads of a running worker are those that ARCHITECTURE.md lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from support.podman import IMAGE
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

ARCHITECTURE = Path(__file__).resolve().parents[3] / "ARCHITECTURE.md"


def listed() -> set[str]:
    """The names in the first column of the table of the worker's threads."""
    section = ARCHITECTURE.read_text().partition("## Inside the worker\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w, -]+) \| ", section, re.MULTILINE)
    return {name for row in rows for name in row.split(", ")} - {"thread", "---"}


def test_the_table_lists_exactly_the_threads_of_a_running_worker(
    container_worker: Callable[..., WorkerProcess], pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when a thread has a name that the table does not have."""
    worker = container_worker(runner="both").start()
    gate = tmp_path / "gate"
    run = pool.submit(run=f"while [ ! -e {gate} ]; do sleep 0.02; done; echo x > out", artifacts=[{"path": "out"}])
    pool.until(run, "running")
    box = pool.submit(image=IMAGE, run="sleep 300")
    pool.until_named(box)
    gate.touch()
    pool.until(run)
    seen: set[str] = set()

    def unseen() -> set[str]:
        seen.update(re.sub(r"_\d+$", "", name) for name in worker.status()["threads"])
        return listed() - seen

    wait_until(lambda: not unseen(), 30, f"to see all of {listed()}")
    assert seen == listed()
    pool.admin.post(f"/v1/runs/{box}/cancel", json={})
