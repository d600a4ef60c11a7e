"""Loops on real workers: what each job of a round finds, and a worker that is killed between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from deborgen_worker.crash import VARIABLE
from support.podman import IMAGE
from support.pool import ENDED, Pool
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]
#: Each round adds a line to the history, and the check wants three.
WORK = """
  cat inputs/previous/history > history 2>/dev/null || true
  echo "$DEBORGEN_PHASE $DEBORGEN_ROUND $DEBORGEN_JOB_ID" >> history
  echo "{\\"lines\\": $(wc -l < history)}" > $DEBORGEN_RESULT
"""
CHECK = 'test "$DEBORGEN_PHASE" = verify; cat history; test "$(wc -l < history)" = "$DEBORGEN_ROUND"; test -e 3.only'
LOOP: dict[str, Any] = {
    "run": WORK + "if [ $DEBORGEN_ROUND = 3 ]; then touch 3.only; fi",
    "repeat": {"until": CHECK, "most": 5},
    "artifacts": ["history", "*.only"],
    "resources": {"cpus": 0.1, "memory": "64MiB"},
}
#: Where a worker dies while a job goes over to the next. Each life of the worker dies at the next of them.
PLACES = [
    "after-result-sent",
    "after-result-written",
    "after-collected",
    "after-claim-written",
    "after-assignment-written",
]


def went_through(pool: Pool, run: int) -> None:
    """The run is a loop of three rounds, each of which was done once, on the work of the one before."""
    jobs = pool.admin.get(f"/v1/runs/{run}/jobs").json()["items"]
    found = [(job["index"], job["phase"], job["round"], job["state"], job["verified"]) for job in jobs]
    assert found == [
        (1, "work", 1, "succeeded", None),
        (2, "verify", 1, "succeeded", False),
        (3, "work", 2, "succeeded", None),
        (4, "verify", 2, "succeeded", False),
        (5, "work", 3, "succeeded", None),
        (6, "verify", 3, "succeeded", True),
    ]
    history = f"work 1 {run}.1\nwork 2 {run}.3\nwork 3 {run}.5\n"
    assert pool.admin.get(f"/v1/jobs/{run}.5/artifacts/history").text == history
    assert pool.log(f"{run}.6") == history.encode()
    [row] = pool.admin.get(f"/v1/runs/{run}/results").json()["items"]
    assert (row["job"], row["result"], row["round"], row["verified"]) == (f"{run}.5", {"lines": 3}, 3, True)


def test_fault_84_a_worker_killed_between_work_and_check_in_every_round_repeats_none(
    new_worker: Make, pool: Pool
) -> None:
    """Seen to fail when the next job of a loop is not made together with the result."""
    run = pool.submit(**LOOP)
    worker = new_worker()
    lives = 0

    def has_ended() -> bool:
        return pool.run(run)["state"] in ENDED

    for place in itertools.cycle(PLACES):
        lives += 1
        assert lives < 50, "the loop does not go on"
        worker.start(**{VARIABLE: place})
        process = worker.process
        assert process is not None
        wait_until(lambda: process.poll() is not None or has_ended(), what="the worker to die")  # noqa: B023
        if has_ended():
            break
    assert lives > 3
    went_through(pool, run)


@pytest.mark.podman
def test_a_loop_in_containers(container_worker: Make, pool: Pool) -> None:
    container_worker().start()
    run = pool.submit(image=IMAGE, **LOOP)
    assert pool.done(run)["state"] == "succeeded", pool.log(f"{run}.1")
    went_through(pool, run)
