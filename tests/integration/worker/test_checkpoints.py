"""Checkpoints with real workers: the job goes on where it was, wherever that is."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deborgen_worker.crash import VARIABLE
from support.podman import IMAGE
from support.pool import ENDED, Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]
EXAMPLE = Path(__file__).parents[3] / "examples/checkpoint"
#: Each step has two files, which must never be seen apart. The program asks for a checkpoint after each step.
TWINS = """
  n=$(cat state/now 2>/dev/null || echo 0)
  echo "from $n"
  if [ "$n" -gt 0 ]; then [ "$(cat state/$n.a)" = "$n" ]; [ "$(cat state/$n.b)" = "$n" ]; exit 0; fi
  mkdir -p state
  while [ "$n" -lt 6000 ]; do
    n=$((n + 1))
    echo $n > state/$n.a; echo $n > state/$n.b
    echo $n > state/new; mv state/new state/now
    rm -f state/$((n - 1)).a state/$((n - 1)).b
    echo $n >> $DEBORGEN_CHECKPOINT
    sleep 0.1
  done
"""
SAVES: dict[str, Any] = {"checkpoint": {"path": "state/", "every": "1h"}, "max_attempts": 3, "retry": {"backoff": "0s"}}


def until_saved(pool: Pool, run: int, attempt: int = 1) -> dict[str, Any]:
    """The run's first job, once this attempt has saved a checkpoint."""

    def is_saved() -> bool:
        job = pool.job(run)
        assert job["state"] not in ENDED, pool.log(run)
        return job["checkpoint"] is not None and job["checkpoint"]["attempt"] == f"{job['id']}/{attempt}"

    wait_until(is_saved, what=f"a checkpoint of attempt {attempt} of run {run}")
    return pool.job(run)


def test_a_simulation_whose_worker_is_killed_three_times_ends_as_if_undisturbed(
    new_worker: Make, pool: Pool, tmp_path: Path
) -> None:
    program = (EXAMPLE / "simulate.py").read_bytes()
    sha256 = hashlib.sha256(program).hexdigest()
    assert pool.admin.put(f"/v1/blobs/{sha256}", data=program).status_code == 201
    file = {"path": "simulate.py", "sha256": sha256, "size": len(program), "mode": 0o644}
    go = tmp_path / "go"  # so that it cannot end before its worker was killed often enough
    run = pool.submit(
        run=f"python3 simulate.py 70 0.1; while [ ! -e {go} ]; do sleep 0.05; done",
        files=[file],
        max_attempts=5,
        retry={"backoff": "0s"},
        checkpoint={"path": "state/", "every": "1s"},
    )
    worker = new_worker().start()
    for attempt in (1, 2, 3):
        until_saved(pool, run, attempt)
        worker.lose_power()
        worker.start()
    go.touch()
    job = pool.until(run)
    assert job["state"] == "succeeded", job["reason"]
    assert [each["outcome"] for each in job["history"]] == ["lost", "lost", "lost", "succeeded"]
    assert all(each["went_on_from"] is not None for each in job["history"][1:])
    (tmp_path / "alone").mkdir()
    subprocess.run(
        ["python3", EXAMPLE / "simulate.py", "70", "0"], cwd=tmp_path / "alone", check=True, capture_output=True
    )
    assert job["result"] == json.loads((tmp_path / "alone/result.json").read_text())
    assert job["checkpoint"] is None


@pytest.mark.parametrize("place", ["after-checkpoint-copied", "before-checkpoint-uploaded", "before-checkpoint-saved"])
def test_fault_85_a_worker_killed_while_it_saves_leaves_the_checkpoint_before_whole(
    new_worker: Make, pool: Pool, place: str
) -> None:
    """Seen to fail when a checkpoint is reported before its blobs are uploaded, and is accepted."""
    run = pool.submit(run=TWINS, **SAVES)
    worker = new_worker().start()
    before = until_saved(pool, run)["checkpoint"]["number"]
    worker.kill()
    worker.start(**{VARIABLE: place})  # it takes up the job, and dies when it saves the next time
    assert worker.process is not None
    assert worker.process.wait(90) == -signal.SIGKILL
    worker.lose_power()
    worker.start()
    job = pool.until(run)
    assert job["state"] == "succeeded", pool.log(run)
    assert job["history"][-1]["went_on_from"]["number"] >= before
    assert pool.log(run) != b"from 0\n"


@pytest.mark.parametrize("how", ["TERM", "pause"])
def test_a_job_that_is_given_back_goes_on_elsewhere(new_worker: Make, pool: Pool, how: str) -> None:
    run = pool.submit(
        run="mkdir -p state; if [ -e state/last ]; then cat state/last; exit 0; fi;"
        " trap 'echo the last words > state/last; exit 1' TERM; echo ready; while :; do sleep 0.1; done",
        checkpoint={"path": "state/last", "every": "1h"},
    )
    first = new_worker(keep_frozen=0).start()
    wait_until(lambda: pool.log(run) == b"ready\n", what="the job to run")
    second = new_worker().start()
    wait_until(second.answers, what="the second worker")
    if how == "TERM":
        assert first.command("stop").returncode == 0
    else:
        assert first.command("pause", "5h", "--now").returncode == 0
    job = pool.until(run)
    assert job["state"] == "succeeded", job["reason"]
    assert pool.log(run) == b"the last words\n"
    assert [each["outcome"] for each in job["history"]] == ["released", "succeeded"]
    assert job["attempts"] == 1


@pytest.mark.podman
def test_a_container_is_saved_and_restored_too(container_worker: Make, pool: Pool) -> None:
    run = pool.submit(
        image=IMAGE,
        run="mkdir -p state; if [ -e state/n ]; then echo from $(cat state/n); exit 0; fi;"
        " echo 7 > state/n; echo now > $DEBORGEN_CHECKPOINT; sleep 600",
        **SAVES,
    )
    worker = container_worker().start()
    until_saved(pool, run)
    worker.command("stop")
    worker.start()
    job = pool.until(run)
    assert (job["state"], pool.log(run)) == ("succeeded", b"from 7\n")
