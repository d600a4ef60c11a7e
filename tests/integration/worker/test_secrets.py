"""Secrets on a worker: in the program's environment, and masked in its log, also after a restart of the worker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deborgen_worker.secret_files import folder_in_memory
from support.podman import IMAGE
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]
VALUE = "s3cr3t-of-the-pool"
STARS = b"*" * len(VALUE)


@pytest.fixture(autouse=True)
def secret(pool: Pool) -> Iterator[None]:
    assert pool.admin.put("/v1/secrets/KEY", json={"value": VALUE}).status_code == 200
    yield
    pool.admin.delete("/v1/secrets/KEY")


def test_fault_86_a_container_gets_its_secrets_and_its_log_is_masked(pool: Pool, container_worker: Make) -> None:
    """Seen to fail when nothing is masked."""
    container_worker(labels="test=secret").start()
    script = 'echo "it is $KEY"; test -n "$KEY"'
    run = pool.submit(run=script, image=IMAGE, secrets=["KEY"], requires={"test": "secret"})
    assert pool.until(run)["state"] == "succeeded"
    assert pool.log(run) == b"it is " + STARS + b"\n"


def killed_in_the_middle(pool: Pool, worker: WorkerProcess, tmp_path: Path) -> int:
    """A run whose job has told its secret once, and whose worker was killed then. It tells it again after `go`."""
    ran, go = tmp_path / "ran", tmp_path / "go"
    tmp_path.chmod(0o777)
    worker.start()
    run = pool.submit(
        run=f'echo "first $KEY"; echo > {ran}; while [ ! -e {go} ]; do sleep 0.05; done; echo "second $KEY"',
        secrets=["KEY"],
    )
    wait_until(lambda: pool.job(run)["state"] == "running" and pool.log(run), what="the first line")
    worker.kill()
    return run


def test_fault_86_a_worker_that_is_restarted_masks_the_rest_of_the_log(
    pool: Pool, new_worker: Make, tmp_path: Path
) -> None:
    """Seen to fail when secrets are kept in memory alone."""
    worker = new_worker()
    run = killed_in_the_middle(pool, worker, tmp_path)
    worker.start()
    (tmp_path / "go").touch()
    assert pool.until(run)["state"] == "succeeded"
    assert pool.log(run) == b"first " + STARS + b"\nsecond " + STARS + b"\n"
    folder = folder_in_memory(worker.state)
    assert folder is not None
    wait_until(lambda: not list(folder.iterdir()), what="the secrets to be removed with the attempt")


def test_fault_86_the_log_of_an_adopted_job_is_withheld_if_its_secrets_are_gone(
    pool: Pool, new_worker: Make, tmp_path: Path
) -> None:
    """Seen to fail when a log is never withheld."""
    worker = new_worker()
    run = killed_in_the_middle(pool, worker, tmp_path)
    folder = folder_in_memory(worker.state)
    assert folder is not None
    shutil.rmtree(folder)
    worker.start()
    (tmp_path / "go").touch()
    job: dict[str, Any] = pool.until(run)
    assert job["state"] == "succeeded"
    assert VALUE.encode() not in pool.log(run)
    assert b"second" not in pool.log(run)
    assert "log withheld" in job["warnings"][0]
