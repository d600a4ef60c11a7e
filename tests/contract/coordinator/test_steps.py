"""Steps that need each other, their inputs, and retried runs."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.jobs.look import list_jobs
from deborgen_coordinator.operations.runs import submit as submitting
from deborgen_coordinator.operations.runs.cancel import cancel_job
from deborgen_coordinator.operations.runs.look import list_runs
from deborgen_coordinator.operations.runs.retry import retry_run
from deborgen_shared import messages as m
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.jobfile.keys import NOT_YET
from deborgen_shared.queries import JobsQuery, RunsQuery
from support.in_process import InProcessCoordinator, InProcessWorker, person

PIPELINE: dict[str, Any] = {
    "steps": [
        {"id": "prepare", "run": "true", "artifacts": ["data/**"]},
        {"id": "simulate", "run": "true", "sweep": {"grid": {"seed": [1, 2, 3]}}, "artifacts": ["out.txt"]},
        {"id": "collect", "run": "true", "needs": ["simulate"]},
    ]
}


def submit(pool: InProcessCoordinator, document: dict[str, Any], by: str = "alice") -> m.Run:
    return submitting.submit(pool.ctx, person(by), document, None, "")[0]


def artifact(pool: InProcessCoordinator, path: str, data: bytes) -> m.Artifact:
    digest = hashlib.sha256(data).hexdigest()
    blobs.put(pool.ctx, digest, [data])
    return m.Artifact(path=path, sha256=digest, size=len(data))


def input_paths(assignment: m.Assignment) -> list[str]:
    """Where the inputs of the assignment appear in the workspace."""
    return [made.target for made in assignment.inputs]


def run_first_two_steps(pool: InProcessCoordinator, worker: InProcessWorker) -> None:
    """Run the first two steps to their end."""
    (first,) = worker.start(10)
    worker.finish(first, artifacts=[artifact(pool, "data/a.csv", b"a"), artifact(pool, "data/b.csv", b"b")])
    for attempt in worker.start(10):
        worker.finish(attempt, artifacts=[artifact(pool, "out.txt", attempt.encode())])


def test_a_step_starts_when_all_steps_that_it_needs_have_succeeded(pool: InProcessCoordinator) -> None:
    submit(pool, PIPELINE)
    worker = pool.worker()
    (first,) = worker.start(10)
    assert first == "1.1/1"
    worker.finish(first)
    middle = worker.start(10)
    assert middle == ["1.2/1", "1.3/1", "1.4/1"]
    worker.finish(middle[0])
    worker.finish(middle[1])
    assert worker.start(10) == []
    worker.finish(middle[2])
    (last,) = worker.start(10)
    worker.finish(last)
    assert pool.run(1).state == "succeeded"


def test_a_steps_artifacts_become_inputs_of_the_next_step(pool: InProcessCoordinator) -> None:
    submit(pool, PIPELINE)
    worker = pool.worker()
    (first,) = worker.start(10)
    worker.finish(first, artifacts=[artifact(pool, "data/a.csv", b"a")])
    middle = worker.assignments(10)
    assert [input_paths(assignment) for assignment in middle] == [["inputs/prepare/data/a.csv"]] * 3
    worker.beat()
    for assignment in middle:
        worker.finish(assignment.attempt, artifacts=[artifact(pool, "out.txt", assignment.attempt.encode())])
    (last,) = worker.assignments(10)
    assert input_paths(last) == [f"inputs/simulate/{index}/out.txt" for index in (2, 3, 4)]


@pytest.mark.parametrize("how", ["failed", "canceled"])
def test_steps_that_need_an_unsuccessful_step_are_canceled(pool: InProcessCoordinator, how: str) -> None:
    submit(pool, PIPELINE)
    worker = pool.worker()
    (first,) = worker.start()
    worker.finish(first, how)
    assert pool.run(1).jobs == m.JobCounts(failed=int(how == "failed"), canceled=4 + int(how == "canceled"))
    assert pool.job("1.5").reason == "step 'simulate', which it needs, did not succeed"
    assert worker.start(10) == []


def test_one_failure_in_a_sweep_cancels_later_steps_and_not_its_siblings(pool: InProcessCoordinator) -> None:
    submit(pool, PIPELINE)
    worker = pool.worker()
    worker.finish(*worker.start(10))
    one, two, three = worker.start(10)
    worker.finish(one, "failed")
    assert pool.job("1.5").state == "canceled"
    assert worker.beat(two, three) == {two: "continue", three: "continue"}
    worker.finish(two)
    worker.finish(three)
    assert pool.run(1).state == "failed"


def test_a_step_whose_last_job_succeeds_after_a_failure_has_not_succeeded(pool: InProcessCoordinator) -> None:
    """Found by `make fuzz`, and seen to fail: the audit said that the later step waits for nothing."""
    submit(pool, {"steps": [PIPELINE["steps"][1], PIPELINE["steps"][2]]})
    worker = pool.worker()
    first, second, third = worker.start(10)
    worker.finish(first, "failed", exit_code=1)
    worker.finish(second)
    worker.finish(third)
    assert [pool.job(f"1.{index}").state for index in (1, 2, 3, 4)] == ["failed", "succeeded", "succeeded", "canceled"]
    assert pool.audit().findings == []


def test_an_attempt_that_is_given_back_leaves_no_artifacts(pool: InProcessCoordinator) -> None:
    """Found by `make fuzz`, and seen to fail: they were listed as the job's, though it had no result."""
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    absent = m.Artifact(path="absent.txt", sha256="a" * 64, size=1)
    assert worker.finish(attempt, "released", artifacts=[artifact(pool, "out.txt", b"half"), absent]) == "accepted"
    assert (pool.job("1.1").state, pool.job("1.1").artifacts) == ("queued", [])
    assert pool.audit().findings == []


def test_a_retry_is_a_new_run_of_the_same_jobs_under_their_old_index(pool: InProcessCoordinator) -> None:
    submit(pool, PIPELINE)
    worker = pool.worker()
    (first,) = worker.start()
    worker.finish(first, artifacts=[artifact(pool, "data/a.csv", b"a")])
    for attempt in worker.start(10):
        outcome = "failed" if attempt == "1.3/1" else "succeeded"
        made = [artifact(pool, "out.txt", attempt.encode())] if outcome == "succeeded" else []
        worker.finish(attempt, outcome, artifacts=made)
    again, created = retry_run(pool.ctx, person("alice"), 1, m.Retry(only="failed"))
    assert (created, again.id, again.retry_of, again.jobs.queued) == (True, 2, 1, 2)
    (retried,) = worker.assignments(10)
    assert (retried.attempt, retried.params) == ("2.3/1", {"seed": 2})
    assert input_paths(retried) == ["inputs/prepare/data/a.csv"]
    worker.beat()
    worker.finish("2.3/1", artifacts=[artifact(pool, "out.txt", b"now")])
    (last,) = worker.assignments(10)
    assert last.attempt == "2.5/1"
    assert [(made.target, made.job) for made in last.inputs] == [
        ("inputs/simulate/2/out.txt", "1.2"),
        ("inputs/simulate/3/out.txt", "2.3"),
        ("inputs/simulate/4/out.txt", "1.4"),
    ]


def test_a_retry_of_all_runs_everything_again(pool: InProcessCoordinator) -> None:
    submit(pool, PIPELINE)
    worker = pool.worker()
    run_first_two_steps(pool, worker)
    worker.finish(*worker.start(10))
    again, _ = retry_run(pool.ctx, person("alice"), 1, m.Retry(only="all"))
    run_first_two_steps(pool, worker)
    worker.finish(*worker.start(10))
    assert pool.run(again.id).state == "succeeded"


def test_inputs_from_a_retried_job_come_only_from_the_later_run(pool: InProcessCoordinator) -> None:
    submit(pool, PIPELINE)
    worker = pool.worker()
    run_first_two_steps(pool, worker)
    worker.finish(*worker.start(10))
    retry_run(pool.ctx, person("alice"), 1, m.Retry(only="all"))
    (first,) = worker.start(10)
    worker.finish(first, artifacts=[artifact(pool, "data/c.csv", b"c")])
    assert {tuple(input_paths(assignment)) for assignment in worker.assignments(10)} == {("inputs/prepare/data/c.csv",)}


@pytest.mark.parametrize("only", ["canceled", "failed"])
def test_a_retry_includes_the_unsuccessful_jobs_that_its_jobs_need(pool: InProcessCoordinator, only: m.Retried) -> None:
    submit(pool, {"steps": [
        {"id": "a", "run": "true", "sweep": {"grid": {"n": [1, 2]}}}, {"id": "b", "run": "true"},
        {"id": "c", "run": "true", "needs": []}, {"id": "d", "run": "true", "needs": ["c"]},
    ]})  # fmt: skip
    worker = pool.worker()
    one, _, three = worker.start(10)
    worker.finish(one, "failed")
    with pytest.raises(Refusal, match=r"job 1\.2, which others need, has not ended"):
        retry_run(pool.ctx, person("alice"), 1, m.Retry(only=only))
    pool.cancel("1.2")
    worker.finish("1.2/1", "canceled")
    worker.finish(three)
    retry_run(pool.ctx, person("alice"), 1, m.Retry(only=only))
    listed = list_jobs(pool.ctx, JobsQuery(run=2)).items
    assert [job.id for job in listed] == ["2.1", "2.2", "2.3"]


def test_a_retry_of_failed_jobs_leaves_out_jobs_that_a_person_canceled(pool: InProcessCoordinator) -> None:
    submit(pool, {"steps": [
        {"id": "a", "run": "true"}, {"id": "b", "run": "true"}, {"id": "c", "run": "true", "needs": []},
    ]})  # fmt: skip
    pool.cancel("1.1")
    worker = pool.worker()
    [attempt] = worker.start(10)
    worker.finish(attempt, "failed")
    retry_run(pool.ctx, person("alice"), 1, m.Retry(only="failed"))
    listed = list_jobs(pool.ctx, JobsQuery(run=2)).items
    assert [job.id for job in listed] == ["2.3"]


def retry_and_list(pool: InProcessCoordinator, run: int, only: m.Retried) -> list[str]:
    """Retry the run; return the jobs of the new run."""
    new, _ = retry_run(pool.ctx, person("alice"), run, m.Retry(only=only))
    return [job.id for job in list_jobs(pool.ctx, JobsQuery(run=new.id)).items]


def test_a_retry_of_failed_jobs_depends_on_events_and_not_on_the_wording_of_a_reason(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when every reason that begins like the coordinator's own counts as one of the coordinator's."""
    submit(pool, {"steps": [{"id": "a", "run": "true"}, {"id": "b", "run": "true", "sweep": {"grid": {"n": [1, 2]}}}]})
    cancel_job(pool.ctx, person("alice"), 1, 2, "step 'a' is not worth it")
    worker = pool.worker()
    worker.finish(worker.take(), "failed")
    assert [pool.job(name).state for name in ("1.2", "1.3")] == ["canceled", "canceled"]
    assert retry_and_list(pool, 1, "failed") == ["2.1", "2.3"]


def test_a_retry_of_failed_jobs_includes_dependents_of_a_canceled_sibling(pool: InProcessCoordinator) -> None:
    submit(pool, {"steps": [{"id": "a", "run": "true", "sweep": {"grid": {"n": [1, 2]}}}, {"id": "b", "run": "true"}]})
    pool.cancel("1.1")
    worker = pool.worker()
    worker.finish(worker.take(), "failed")
    assert retry_and_list(pool, 1, "failed") == ["2.1", "2.2", "2.3"]


def test_a_repeated_retry_under_one_key_makes_one_run(pool: InProcessCoordinator) -> None:
    pool.submit()
    pool.cancel("1")
    first = retry_run(pool.ctx, person("alice"), 1, m.Retry(only="canceled"), "key", "digest")
    assert retry_run(pool.ctx, person("alice"), 1, m.Retry(only="canceled"), "key", "digest") == (first[0], False)
    with pytest.raises(Refusal) as caught:
        retry_run(pool.ctx, person("alice"), 1, m.Retry(only="all"), "key", "other")
    assert caught.value.code is Code.IDEMPOTENCY_CONFLICT


def test_fault_05_the_same_key_with_another_body_is_refused_and_nothing_is_stored(pool: InProcessCoordinator) -> None:
    """Seen to fail when an idempotency key is not tied to its body."""
    pool.submit(key="k")
    assert pool.submit(key="k").id == 1
    with pytest.raises(Refusal) as caught:
        pool.submit(key="k", priority=3)
    assert caught.value.code is Code.IDEMPOTENCY_CONFLICT
    assert [run.id for run in list_runs(pool.ctx, RunsQuery()).items] == [1]


def test_the_same_key_of_two_people_is_two_keys(pool: InProcessCoordinator) -> None:
    assert [pool.submit(key="k", by=who).id for who in ("alice", "bob", "alice")] == [1, 2, 1]


def test_templates_are_filled_in_for_each_job(pool: InProcessCoordinator) -> None:
    submit(
        pool,
        {
            "run": "echo ${{ word }} ${{ job.id }} ${{ attempt }}",
            "env": {"W": "${{ word }}"},
            "sweep": {"grid": {"word": ["a b", "c"]}},
        },
    )
    first, second = pool.worker().assignments(2)
    assert (first.spec["run"], first.spec["env"]) == ("echo 'a b' 1.1 1", {"W": "a b"})
    assert second.spec["run"] == "echo c 1.2 1"
    assert pool.job("1.1").spec["run"] == "echo ${{ word }} ${{ job.id }} ${{ attempt }}"


def test_keys_that_are_not_supported_yet_are_refused_not_ignored(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NOT_YET, "checkpoint", "is not supported by this version yet")
    with pytest.raises(Refusal) as caught:
        pool.submit(checkpoint={"path": "state/"})
    assert caught.value.code is Code.INVALID_JOB
    assert len(caught.value.details["problems"]) == 1


def test_the_default_image_is_recorded_at_submit(make_pool: Any) -> None:
    pool = make_pool(default_image="python:3.12-slim")
    pool.submit()
    pool.submit(image="alpine")
    assert [pool.job(f"{n}.1").spec["image"] for n in (1, 2)] == ["python:3.12-slim", "alpine"]


def test_files_must_have_been_uploaded(pool: InProcessCoordinator) -> None:
    data = b"print(1)"
    digest = hashlib.sha256(data).hexdigest()
    files = [{"path": "sim.py", "sha256": digest, "size": len(data), "mode": 0o644}]
    with pytest.raises(Refusal, match="was not uploaded"):
        pool.submit(files=files)
    blobs.put(pool.ctx, digest, [data])
    pool.submit(files=files)
    with pytest.raises(Refusal, match="has 8 bytes, not 9"):
        pool.submit(files=[{**files[0], "size": 9}])
