"""The supervisor without a worker: it applies time limits, ends abandoned programs, and obeys the owner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from deborgen_worker.runners import supervisor
from support.podman import IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]


def state_of(pid: int) -> str:
    """The kernel's letter for the state of a process; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def begun(pool: Pool, worker: WorkerProcess, folder: Path, **spec: object) -> tuple[int, int]:
    """A run whose program runs until it is ended, and its pid. The worker is dead."""
    pid = folder / "pid"
    run = pool.submit(run=f"echo $$ > {pid}; while true; do sleep 0.05; done", **spec)
    wait_until(lambda: pid.exists() and pid.read_text().strip())
    pool.until_named(run)
    worker.kill()
    return run, int(pid.read_text())


def test_fault_58_the_supervisor_ends_a_process_at_its_time_limit_while_the_worker_is_dead(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """Seen to fail when the supervisor ignores time limits."""
    worker = new_worker(env={"DEBORGEN_BACKSTOP_SECONDS": "0.5"}).start()
    run, pid = begun(pool, worker, tmp_path, timeout="2s")
    wait_until(lambda: not state_of(pid), what="the supervisor to end the program")
    worker.start()
    job = pool.until(run)
    assert job["history"][0]["outcome"] == "timeout"


def test_fault_58_the_supervisor_ends_a_container_at_its_time_limit_while_the_worker_is_dead(
    container_worker: Make, pool: Pool, podman: Podman
) -> None:
    """Seen to fail when the supervisor ignores time limits."""
    worker = container_worker(env={"DEBORGEN_BACKSTOP_SECONDS": "0.5"}).start()
    run = pool.submit(image=IMAGE, run="sleep 1000", timeout="3s")
    pool.until_named(run)
    worker.kill()
    [container] = podman.of(worker.name)
    wait_until(lambda: not podman.inspect(container)["State"]["Running"], what="the supervisor to end the container")
    worker.start()
    assert pool.until(run)["history"][0]["outcome"] == "timeout"


def test_fault_87_a_container_is_ended_if_no_worker_comes_back(
    container_worker: Make, pool: Pool, podman: Podman
) -> None:
    """Seen to fail when programs run forever without a worker."""
    worker = container_worker(env={"DEBORGEN_TAKE_UP_SECONDS": "1"}).start()
    run = pool.submit(image=IMAGE, run="sleep 1000")
    pool.until_named(run)
    worker.kill()
    [container] = podman.of(worker.name)
    wait_until(lambda: not podman.inspect(container)["State"]["Running"], what="the supervisor to end the container")
    worker.start()
    job = pool.until(run)
    assert (job["history"][0]["outcome"], job["reason"]) == ("error", "no worker came back for it in time")


def test_the_owner_freezes_and_wakes_a_container_without_a_worker(
    container_worker: Make, pool: Pool, podman: Podman
) -> None:
    worker = container_worker().start()
    run = pool.submit(image=IMAGE, run="sleep 1000")
    pool.until_named(run)
    worker.kill()
    [container] = podman.of(worker.name)
    worker.command("pause", "--now")
    wait_until(lambda: podman.inspect(container)["State"]["Paused"])
    worker.command("resume")
    wait_until(lambda: not podman.inspect(container)["State"]["Paused"])
    worker.start()
    wait_until(lambda: worker.answers() and [each["stage"] for each in worker.status()["attempts"]] == ["running"])
    pool.admin.post(f"/v1/runs/{run}/cancel", json={})
    assert pool.until(run)["state"] == "canceled"


def test_fault_87_a_process_is_ended_if_no_worker_comes_back(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    """Seen to fail when programs run forever without a worker."""
    worker = new_worker(env={"DEBORGEN_TAKE_UP_SECONDS": "1"}).start()
    run, pid = begun(pool, worker, tmp_path)
    wait_until(lambda: not state_of(pid), what="the supervisor to end the program")
    worker.start()
    job = pool.until(run)
    assert (job["history"][0]["outcome"], job["reason"]) == ("error", "no worker came back for it in time")


def test_the_owner_freezes_and_wakes_a_process_without_a_worker(new_worker: Make, pool: Pool, tmp_path: Path) -> None:
    worker = new_worker().start()
    run, pid = begun(pool, worker, tmp_path)
    assert "1 running job is frozen" in worker.command("pause", "--now").stdout
    wait_until(lambda: state_of(pid) == "T")
    assert f"{run}.1/1" in worker.command("status").stdout
    assert worker.command("status", "--json").stdout == "", "what is not JSON is for people"
    worker.command("resume")
    wait_until(lambda: state_of(pid) in {"S", "R"})
    worker.start()
    wait_until(lambda: worker.answers() and [each["stage"] for each in worker.status()["attempts"]] == ["running"])
    os.kill(pid, 9)
    assert pool.until(run)["history"][0]["outcome"] == "failed"


def test_a_worker_uses_a_supervisor_that_runs_apart_and_starts_none(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    """It runs as in its own container. Seen to fail when a supervisor with `--stay` quits at the worker's request."""
    worker = new_worker(supervisor="apart").start()
    wait_until(lambda: worker.process and worker.process.poll() == 1, what="the worker to give up", log=worker.log)
    assert "its supervisor cannot be reached" in worker.said()
    apart = subprocess.Popen([sys.executable, "-m", supervisor.__name__, worker.state, "--stay"])
    try:
        worker.start()
        _, pid = begun(pool, worker, tmp_path)
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(apart.pid), "its parent"
        worker.start()
        wait_until(worker.answers)
        worker.stop()
        assert not state_of(pid)
        assert apart.poll() is None
    finally:
        apart.kill()
        apart.wait()
