"""A coordinator on a system without Linux's own calls and files, as on macOS: everything works there too."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.coordinator import CoordinatorProcess, children_of, clean_environment
from support.pool import Pool
from support.waiting import wait_until
from support.without_linux import environment
from support.worker import WorkerProcess


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path / "python")


def run(coordinator: CoordinatorProcess, *arguments: str) -> str:
    done = subprocess.run(
        coordinator.command(*arguments), capture_output=True, text=True, timeout=60, check=False,
        env=clean_environment() | coordinator.env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_serves_a_worker_and_restores_its_backup(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    """Seen to fail with `os.posix_fallocate` for the reserve, `prctl`, and `POLLRDHUP` for disconnected clients."""
    data = os.urandom(300_000)
    sha256 = hashlib.sha256(data).hexdigest()
    first = CoordinatorProcess(tmp_path, env=elsewhere)
    with Pool(first) as pool:
        assert pool.admin.put(f"/v1/blobs/{sha256}", data=data).status_code == 201
        with WorkerProcess(tmp_path, first, env=elsewhere):
            job = pool.submit(
                run="cat in.txt | wc -c; echo {} > $DEBORGEN_RESULT", artifacts=["in.txt"],
                files=[{"path": "in.txt", "sha256": sha256, "size": len(data)}],
            )  # fmt: skip
            assert pool.until(job)["state"] == "succeeded"
            # The worker's claim waits and a person listens, also while nothing happens.
            listening = pool.admin.get("/v1/events", headers={"Accept": "text/event-stream"}, stream=True)
            assert any(b"job.succeeded" in line for line in listening.iter_lines())
            listening.close()
            assert pool.until(pool.submit(run="true"))["state"] == "succeeded"
        before = pool.job(job)
        assert run(first, "backup", str(tmp_path / "backup")) == f"All data was written to {tmp_path / 'backup'}.\n"
        assert first.stop() == 0
        assert "Traceback" not in first.logged()
    (tmp_path / "second").mkdir()
    second = CoordinatorProcess(tmp_path / "second", env=elsewhere)
    run(second, "restore", str(tmp_path / "backup"))
    run(second, "audit")
    second._tokens = first._tokens
    with Pool(second) as pool:
        assert pool.job(job) == before
        assert pool.log(job).strip() == b"300000"
        assert pool.admin.get(f"/v1/jobs/{job}.1/artifacts/in.txt").content == data


def test_its_serving_process_does_not_outlive_the_arbiter(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    """Seen to fail when a serving process does not check for its parent: the system does not end it with its parent."""
    with CoordinatorProcess(tmp_path, env=elsewhere) as coordinator:
        assert coordinator.process is not None
        (child,) = children_of(coordinator.process.pid)
        os.kill(coordinator.process.pid, signal.SIGKILL)
        coordinator.process.wait()
        wait_until(lambda: not Path(f"/proc/{child}").exists(), what="the serving process to end", log=coordinator.log)
        coordinator.start()
        assert coordinator.client(None).get("/health").status_code == 200
