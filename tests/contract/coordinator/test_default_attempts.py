"""The number of attempts of a job that does not set it: the pool's default, recorded when the job is submitted."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deborgen_coordinator.operations.jobs.look import list_jobs
from deborgen_coordinator.operations.runs import submit as submitting
from deborgen_coordinator.operations.runs.retry import retry_run
from deborgen_coordinator.settings import CoordinatorSettings
from deborgen_coordinator.storage.transactions import Tx
from deborgen_shared.messages import Retry
from deborgen_shared.queries import JobsQuery
from support.in_process import InProcessCoordinator, person

SWEEP = {"grid": {"n": [1, 2]}}
STEPS: dict[str, Any] = {
    "steps": [
        {"id": "make", "run": "true"},
        {"id": "try", "run": "true", "needs": [], "sweep": SWEEP, "max_attempts": 9},
        {"id": "end", "run": "true", "needs": []},
    ]
}


def submit(
    pool: InProcessCoordinator, document: dict[str, Any] | None = None, key: str | None = None, **keys: Any
) -> int:
    """Submit exactly this document; return the run's number. The pool's own `submit` would set one attempt."""
    body = {**(document or {"run": "true"}), **keys}
    return submitting.submit(pool.ctx, person("alice"), body, key, repr(body))[0].id


def attempts(pool: InProcessCoordinator, run: int, count: int = 1) -> list[int]:
    """The number of attempts in every answer about these jobs, which must be the same."""
    shown = [pool.job(f"{run}.{index}") for index in range(1, count + 1)]
    listed = list_jobs(pool.ctx, JobsQuery(run=run, limit=1000)).items
    assert [job.max_attempts for job in shown] == [job.max_attempts for job in listed]
    assert [job.max_attempts for job in shown] == [job.spec["max_attempts"] for job in shown]
    return [job.max_attempts for job in shown]


def set_default(pool: InProcessCoordinator, number: int) -> None:
    """Restart the coordinator with another `default_max_attempts`."""
    pool.settings = dataclasses.replace(pool.settings, default_max_attempts=number)
    pool.restart()


def test_rule_06_a_job_without_max_attempts_survives_two_failed_machines(pool: InProcessCoordinator) -> None:
    submit(pool, retry={"backoff": "1s"})
    for number in (1, 2):
        worker = pool.worker(f"pc{number}")
        worker.finish(worker.take(), "error", reason="no such image")
        assert (pool.job("1.1").state, pool.job("1.1").attempts) == ("queued", number)
        pool.sleep(6)
    last = pool.worker("pc3")
    last.finish(last.take(), "error", reason="no such image")
    assert (pool.job("1.1").state, pool.job("1.1").attempts) == ("failed", CoordinatorSettings().default_max_attempts)


def test_rule_06_a_job_of_one_attempt_is_not_tried_again(pool: InProcessCoordinator) -> None:
    submit(pool, max_attempts=1)
    worker = pool.worker()
    worker.finish(worker.take(), "error", reason="no such image")
    assert (pool.job("1.1").state, pool.job("1.1").reason) == ("failed", "no such image")


def test_rule_06_the_pools_number_is_recorded_at_submit(pool: InProcessCoordinator) -> None:
    submit(pool)
    submit(pool, sweep=SWEEP)
    submit(pool, STEPS)
    submit(pool, {**STEPS, "max_attempts": 4})
    set_default(pool, 7)
    submit(pool)
    assert attempts(pool, 1) == [3]
    assert attempts(pool, 2, 2) == [3, 3]
    assert attempts(pool, 3, 4) == [3, 9, 9, 3]
    assert attempts(pool, 4, 4) == [4, 9, 9, 4], "what the file says is the default of its steps"
    assert attempts(pool, 5) == [7]
    assignment = msgspec.json.encode(pool.worker().assignments()[0])
    assert json.loads(assignment)["spec"]["max_attempts"] == 3, "its worker gets the same number"


def test_rule_06_the_recorded_number_counts_after_the_setting_has_changed(pool: InProcessCoordinator) -> None:
    submit(pool)
    set_default(pool, 1)
    worker = pool.worker()
    worker.finish(worker.take(), "error", reason="no such image")
    assert pool.job("1.1").state == "queued"


def test_rule_06_a_retry_keeps_what_was_recorded(pool: InProcessCoordinator) -> None:
    submit(pool)
    worker = pool.worker()
    worker.finish(worker.take(), "failed")
    set_default(pool, 7)
    retry_run(pool.ctx, person("alice"), 1, Retry(only="failed"))
    assert attempts(pool, 2) == [3]


def test_rule_06_a_repeated_submit_gets_the_same_run_with_the_same_number(pool: InProcessCoordinator) -> None:
    submit(pool, key="k")
    set_default(pool, 7)
    assert submit(pool, key="k") == 1
    assert attempts(pool, 1) == [3]


def test_rule_06_jobs_that_were_submitted_to_the_first_release_keep_their_one_attempt(
    pool: InProcessCoordinator,
) -> None:
    """It stored 1 for jobs that did not set the number. A spec without a number means the same."""
    submit(pool, max_attempts=1)
    submit(pool, name="older")

    def forget(tx: Tx) -> None:
        spec_id, body = tx.one("SELECT id, body FROM spec WHERE body LIKE '%older%'") or (0, "{}")
        spec = json.loads(body)
        del spec["max_attempts"]
        tx.run("UPDATE spec SET body = ? WHERE id = ?", (json.dumps(spec), spec_id))

    pool.ctx.store.write(forget)
    pool.restart()
    assert attempts(pool, 1) == [1]
    assert pool.job("2.1").max_attempts == 1
    for attempt in (worker := pool.worker()).start(2):
        worker.finish(attempt, "error", reason="no such image")
    assert [pool.job(job).state for job in ("1.1", "2.1")] == ["failed", "failed"]
    retry_run(pool.ctx, person("alice"), 2, Retry(only="failed"))
    assert pool.job("3.1").max_attempts == 1


def test_a_check_accepts_what_a_submit_accepts_and_stores_nothing(make_pool: Any) -> None:
    pool = make_pool(default_max_attempts=100)
    assert submitting.check(pool.ctx, person("alice"), STEPS).jobs == 4
    assert submit(pool, STEPS) == 1
    assert attempts(pool, 1, 4) == [100, 9, 9, 100]


@pytest.mark.postgres
def test_each_of_several_coordinators_records_its_own_number(tmp_path: Path, postgres_url: str) -> None:
    one = InProcessCoordinator(tmp_path / "one", postgres_url)
    two = InProcessCoordinator(tmp_path / "two", postgres_url, default_max_attempts=5)
    for coordinator in (one, two, one):
        submit(coordinator)
    assert [attempts(each, run) for each in (one, two) for run in (1, 2, 3)] == [[3], [5], [3]] * 2
    one.stop()
    two.stop()
