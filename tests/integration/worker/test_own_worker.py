"""examples/worker.py: a worker written with plain HTTP runs jobs of a real coordinator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.coordinator import CoordinatorProcess, clean_environment
from support.pool import Pool
from support.waiting import wait_until

WORKER = Path(__file__).parents[3] / "examples" / "worker.py"


@pytest.fixture
def own_worker(pool: Pool, coordinator: CoordinatorProcess) -> Iterator[subprocess.Popen[bytes]]:
    environment = clean_environment() | {"URL": coordinator.url, "TOKEN": coordinator.token("worker", "mine")}
    process = subprocess.Popen([sys.executable, WORKER, "mine"], env=environment)
    yield process
    process.kill()
    process.wait()


def test_the_example_worker_runs_jobs_and_reports_logs_results_and_failures(pool: Pool, own_worker: object) -> None:
    good = pool.submit(run="echo hello; echo world >&2", resources={"cpus": 1, "memory": "64MiB"})
    bad = pool.submit(run="echo no; exit 3")
    swept = pool.submit(run=["echo", "${{ n }}"], sweep={"grid": {"n": {"from": 1, "to": 5}}})
    assert pool.until(good)["state"] == "succeeded"
    assert (pool.until(bad)["state"], pool.until(bad)["exit_code"]) == ("failed", 3)
    assert pool.done(swept)["jobs"]["succeeded"] == 5
    assert sorted(pool.log(good).splitlines()) == [b"hello", b"world"]
    assert pool.log(f"{swept}.5") == b"5\n"


def test_a_job_longer_than_its_lease_is_kept_alive_by_heartbeats_and_can_be_canceled(
    pool: Pool, own_worker: object
) -> None:
    run = pool.submit(run="sleep 600")
    job = wait_until(lambda: pool.job(run) if pool.job(run)["state"] == "running" else None, what="the job to run")
    assert job["worker"] == "mine"
    assert pool.admin.post(f"/v1/runs/{run}/cancel").status_code == 200
    ended = pool.until(run)
    assert ended["state"] == "canceled"
    assert [each["outcome"] for each in ended["history"]] == ["canceled"], "its worker said so, before the lease ended"
