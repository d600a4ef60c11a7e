"""The owner pauses and resumes at any moment: while jobs start, run, end and are adopted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deborgen_worker import control
from support.podman import IMAGE, Podman
from support.pool import Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

PAUSES = 200


def stopped_processes(folder: Path) -> list[int]:
    """The stopped processes of this worker's jobs."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and str(folder).encode() in (each / "environ").read_bytes():
                state = (each / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(each.name)] if state == "T" else []
        except OSError:
            continue
    return found


def test_fault_88_two_hundred_pauses_at_random_moments_give_no_job_back_and_leave_none_stopped(
    container_worker: Callable[..., WorkerProcess], pool: Pool, podman: Podman, tmp_path: Path
) -> None:
    """Jobs in containers and as processes start and end all the time.

    Seen to fail when a program that cannot be frozen at once is given back.
    """
    gate = tmp_path / "gate"
    worker = container_worker(runner="both", keep_frozen="10m", cpus="4").start()
    sweep = {"grid": {"n": {"from": 1, "to": 60}}}
    small = {"cpus": 0.5, "memory": "64MiB"}
    runs = [
        pool.submit(run="sleep 0.1", sweep=sweep, resources=small),
        pool.submit(image=IMAGE, run="sleep 0.1", sweep=sweep, resources=small),
        pool.submit(run=f"while [ ! -e {gate} ]; do sleep 0.05; done", resources=small),
        pool.submit(image=IMAGE, run="sleep 3", resources=small),
    ]
    for run in runs:
        pool.until(run, "running", "succeeded")
    chance = random.Random(88)
    for number in range(PAUSES):
        for command in ({"command": "pause", "seconds": None, "now": True}, {"command": "resume"}):
            answer: dict[str, Any] = control.ask(worker.state, command)
            assert "error" not in answer
            moment = time.monotonic() + chance.choice((0.0, 0.01, 0.1, 0.2))
            wait_until(lambda: time.monotonic() >= moment, every=0.005)  # noqa: B023
        if number == PAUSES // 2:
            worker.kill()
            worker.start()
            wait_until(worker.answers, what="the worker to take commands again")
    gate.touch()
    for run in runs:
        jobs = pool.done(run, 240)["jobs"]
        total = sum(jobs.values())
        assert jobs["succeeded"] == total, jobs
        for number in range(1, total + 1):
            history = pool.job(f"{run}.{number}")["history"]
            begun = [each["outcome"] for each in history if each["started_at"] is not None]
            assert begun == ["succeeded"], "a job that had begun was given back"
    assert stopped_processes(worker.state) == []
    wait_until(lambda: podman.of(worker.name) == [], 30, "the last container to be removed")


def test_fault_89_a_job_that_is_frozen_for_twice_its_timeout_does_not_fail(
    container_worker: Callable[..., WorkerProcess], pool: Pool
) -> None:
    """A process and a container. The worker's time limit, the supervisor's and the coordinator's count used time alone.

    Seen to fail when frozen time counts as used.
    """
    limit = 6.0
    worker = container_worker(runner="both", env={"DEBORGEN_BACKSTOP_SECONDS": "1"}).start()
    script = "echo up; n=0; while [ $n -lt 20 ]; do n=$((n + 1)); sleep 0.1; done; echo done"
    small = {"cpus": 0.5, "memory": "64MiB"}
    for image in ({}, {"image": IMAGE}):
        run = pool.submit(run=script, timeout=f"{limit:g}s", resources=small, **image)
        wait_until(lambda: pool.log(run).startswith(b"up"), 90, log=worker.log)  # noqa: B023
        control.ask(worker.state, {"command": "pause", "seconds": None, "now": True})
        wait_until(lambda: worker.stages() == ["frozen"], log=worker.log)
        moment = time.monotonic() + 2 * limit
        wait_until(lambda: time.monotonic() > moment, 3 * limit)  # noqa: B023
        control.ask(worker.state, {"command": "resume"})
        job = pool.until(run)
        assert (job["state"], len(job["history"])) == ("succeeded", 1), job["reason"]
        assert pool.log(run) == b"up\ndone\n"
