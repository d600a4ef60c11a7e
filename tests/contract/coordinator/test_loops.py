"""Loops: rounds of work and check, until a check says yes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contract.coordinator.test_steps import artifact
from deborgen_coordinator.operations.jobs.look import list_jobs
from deborgen_coordinator.operations.jobs.why import why
from deborgen_coordinator.operations.runs.look import results
from deborgen_coordinator.operations.workers.finish import finish
from deborgen_shared import messages as m
from deborgen_shared.errors import Refusal
from deborgen_shared.jobfile.limits import JOBS
from deborgen_shared.queries import JobsQuery
from support.in_process import PAST_LEASE, InProcessCoordinator, InProcessWorker

LOOP: dict[str, Any] = {"run": "python refine.py", "repeat": {"until": "python good.py", "most": 3}, "artifacts": ["m"]}
#: What follows needs the loop.
STEPS: dict[str, Any] = {"steps": [{"id": "refine", **LOOP}, {"id": "use", "run": "true"}]}


def work(pool: InProcessCoordinator, worker: InProcessWorker, data: bytes = b"model", **more: Any) -> m.Assignment:
    """The next job, which must be work: it succeeds."""
    [given] = worker.assignments()
    assert given.phase == "work"
    worker.finish(given.attempt, artifacts=[artifact(pool, "m", data)], **more)
    return given


def check(worker: InProcessWorker, says: bool) -> m.Assignment:
    """The next job, which must be a check: it gives this answer."""
    [given] = worker.assignments()
    assert given.phase == "verify"
    worker.finish(given.attempt, "succeeded" if says else "failed")
    return given


def jobs_of(pool: InProcessCoordinator, run: int = 1) -> list[tuple[str, str | None, int | None, str, bool | None]]:
    """Every job of a run: id, phase, round, state and answer."""
    listed = list_jobs(pool.ctx, JobsQuery(run=run)).items
    return [(job.id, job.phase, job.round, job.state, job.verified) for job in listed]


def inputs_of(given: m.Assignment) -> list[tuple[str, str]]:
    """Where each input comes from, and where it appears."""
    return [(made.job, made.target) for made in given.inputs]


def test_a_loop_ends_when_its_check_says_yes(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    assert (work(pool, worker, b"one").round, check(worker, False).round) == (1, 1)
    assert (work(pool, worker, b"two").round, check(worker, True).round) == (2, 2)
    assert jobs_of(pool) == [
        ("1.1", "work", 1, "succeeded", None),
        ("1.2", "verify", 1, "succeeded", False),
        ("1.3", "work", 2, "succeeded", None),
        ("1.4", "verify", 2, "succeeded", True),
    ]
    assert pool.run(1).state == "succeeded"
    assert worker.claim() == []
    answers = [event for event in pool.events(run=1) if event.type.startswith("step.")]
    assert [(each.type, each.attempt, each.data) for each in answers] == [
        ("step.not_verified", "1.2/1", {"round": 1}),
        ("step.verified", "1.4/1", {"round": 2}),
    ]
    assert pool.audit().clean


def test_a_check_that_says_no_is_not_a_failure(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    check(worker, False)
    job = pool.job("1.2")
    assert (job.state, job.verified, job.exit_code, job.reason) == ("succeeded", False, 1, "")
    assert (job.history[0].outcome, job.history[0].reason) == ("failed", "exit code 1")
    assert pool.run(1).state == "running"


def test_the_next_job_is_made_in_the_transaction_of_the_result(pool: InProcessCoordinator) -> None:
    """The same request that brings the result gets the next job of the loop."""
    pool.submit(LOOP)
    worker = pool.worker()
    first = worker.take()
    answer = worker.finish_and_claim(first)
    assert [(each.job, each.phase) for each in answer.assignments or []] == [("1.2", "verify")]
    answer = worker.finish_and_claim("1.2/1", "failed")
    assert [(each.job, each.phase, each.round) for each in answer.assignments or []] == [("1.3", "work", 2)]


def test_only_the_last_allowed_check_that_says_no_fails(pool: InProcessCoordinator) -> None:
    pool.submit(STEPS)
    worker = pool.worker()
    for _ in range(3):
        work(pool, worker)
        check(worker, False)
    job = pool.job("1.7")
    assert (job.phase, job.round, job.state, job.verified) == ("verify", 3, "failed", False)
    assert job.reason == "not verified after 3 rounds"
    assert (pool.job("1.2").state, pool.run(1).state) == ("canceled", "failed")
    assert pool.types(job="1.7")[-2:] == ["job.failed", "step.not_verified"]
    assert pool.audit().clean


def test_what_needs_the_loop_starts_when_it_has_succeeded_with_the_last_rounds_artifacts(
    pool: InProcessCoordinator,
) -> None:
    pool.submit(STEPS)
    worker = pool.worker()
    work(pool, worker, b"one")
    check(worker, False)
    work(pool, worker, b"two")
    assert pool.job("1.2").state == "queued"
    assert worker.claim() == ["1.5/1"]
    worker.finish("1.5/1")
    [use] = worker.assignments()
    assert (use.job, inputs_of(use)) == ("1.2", [("1.4", "inputs/refine/m")])
    worker.finish(use.attempt)
    assert pool.run(1).state == "succeeded"
    assert pool.audit().clean


def test_a_check_gets_the_rounds_artifacts_and_the_next_work_gets_them_as_the_previous_ones(
    pool: InProcessCoordinator,
) -> None:
    files = [{"path": "good.py", **file_of(pool, b"print()")}]
    pool.submit({**LOOP, "files": files, "image": "busybox", "timeout": "5m", "result": "r.json"}, env={"A": "b"})
    worker = pool.worker(labels={"runner.container": True})
    first = work(pool, worker, b"one")
    verify = check(worker, False)
    second = work(pool, worker, b"two")
    assert (inputs_of(first), inputs_of(verify)) == ([], [("1.1", "m")])
    assert inputs_of(second) == [("1.1", "inputs/previous/m")]
    [again] = worker.assignments()
    assert inputs_of(again) == [("1.3", "m")]
    ours, theirs = decoded(first.spec), decoded(verify.spec)
    assert (theirs["run"], ours["run"]) == ("python good.py", "python refine.py")
    assert "artifacts" not in theirs
    assert "result" not in theirs
    for key in ("files", "image", "timeout", "env", "resources", "network"):
        assert theirs[key] == ours[key], key
    assert verify.timeout_seconds == first.timeout_seconds == 300


def test_lookups_are_filled_in_in_the_check_too(pool: InProcessCoordinator) -> None:
    pool.submit(
        run="echo ${{ n }}",
        repeat={"until": "test ${{ n }} = ${{ job.id }}", "most": 2},
        sweep={"grid": {"n": ["a b"]}},
    )
    worker = pool.worker()
    work(pool, worker)
    [verify] = worker.assignments()
    assert decoded(verify.spec)["run"] == "test 'a b' = 1.2"
    assert verify.params == {"n": "a b"}


@pytest.mark.parametrize("outcome", ["timeout", "out_of_memory", "stalled", "error"])
def test_a_check_without_an_answer_ends_the_loop_as_failed(pool: InProcessCoordinator, outcome: str) -> None:
    pool.submit(STEPS)
    worker = pool.worker()
    work(pool, worker)
    worker.finish(worker.take(), outcome, reason="no luck")
    assert [job[2:] for job in jobs_of(pool)] == [
        (1, "succeeded", None), (None, "canceled", None), (1, "failed", None)
    ]  # fmt: skip
    assert pool.job("1.3").reason == "no luck"
    assert pool.run(1).state == "failed"
    assert "step.not_verified" not in pool.types()
    assert pool.audit().clean


def test_a_check_that_was_killed_has_not_answered(pool: InProcessCoordinator) -> None:
    """Its worker gives a reason, while a program that ends by itself needs none."""
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    worker.finish(worker.take(), "failed", exit_code=137, reason="killed by SIGKILL")
    job = pool.job("1.2")
    assert (job.state, job.verified, job.reason) == ("failed", None, "killed by SIGKILL")


@pytest.mark.parametrize("outcome", ["failed", "timeout", "out_of_memory", "error"])
def test_work_that_fails_ends_the_loop_as_failed(pool: InProcessCoordinator, outcome: str) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    check(worker, False)
    worker.finish(worker.take(), outcome)
    assert [job[3] for job in jobs_of(pool)] == ["succeeded", "succeeded", "failed"]
    assert pool.run(1).state == "failed"
    assert worker.claim() == []


def test_a_check_whose_machine_fails_is_tried_again(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP, max_attempts=2, retry={"backoff": "5s"})
    worker = pool.worker()
    work(pool, worker)
    worker.start()
    pool.sleep(PAST_LEASE)
    assert pool.job("1.2").state == "queued"
    pool.sleep(10)
    worker.restart()
    assert check(worker, True).attempt == "1.2/2"
    assert pool.run(1).state == "succeeded"
    assert pool.audit().clean


def test_a_retry_of_programs_does_not_apply_to_checks(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP, max_attempts=3, retry={"program": True, "backoff": "0s"})
    worker = pool.worker()
    worker.finish(worker.take(), "failed")
    assert pool.job("1.1").state == "queued"
    work(pool, worker)
    check(worker, False)
    assert pool.job("1.2").state == "succeeded"
    work(pool, worker)
    worker.finish(worker.take(), "timeout")
    assert pool.job("1.4").state == "failed"


@pytest.mark.parametrize("name", ["1", "1.1"])
@pytest.mark.parametrize("phase", ["work", "verify"])
def test_after_a_cancel_the_next_due_job_is_made_already_canceled(
    pool: InProcessCoordinator, name: str, phase: str
) -> None:
    """The program ended first, so its result counts, but the loop goes no further."""
    pool.submit(STEPS)
    worker = pool.worker()
    if phase == "verify":
        work(pool, worker)
        name = "1.3" if "." in name else name
    attempt = worker.take()
    assert "cancel_requested" in pool.cancel(name).values()
    worker.finish(attempt, "succeeded" if phase == "work" else "failed")
    last = pool.job("1.3" if phase == "work" else "1.4")
    assert (last.state, last.reason, last.attempts) == ("canceled", "canceled by alice", 0)
    assert pool.types(job=last.id) == ["job.queued", "job.canceled"]
    assert (pool.job("1.2").state, pool.run(1).state) == ("canceled", "canceled")
    assert worker.claim() == []
    assert pool.audit().clean


def test_a_cancel_does_not_undo_a_check_that_said_yes(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    attempt = worker.take()
    pool.cancel("1")
    worker.finish(attempt)
    assert (pool.job("1.2").verified, pool.run(1).state) == (True, "succeeded")


def test_a_canceled_job_of_a_loop_ends_it(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    assert pool.cancel("1.2") == {"1.2": "canceled"}
    assert pool.run(1).state == "canceled"
    pool.submit(LOOP)
    attempt = worker.take()
    pool.cancel("2")
    worker.finish(attempt, "canceled")
    assert (jobs_of(pool, 2), pool.run(2).state) == ([("2.1", "work", 1, "canceled", None)], "canceled")


def test_each_point_of_a_sweep_is_a_loop_of_its_own(pool: InProcessCoordinator) -> None:
    loop = {"id": "refine", **LOOP, "sweep": {"grid": {"n": [1, 2]}}}
    pool.submit({"steps": [{"id": "prepare", "run": "true"}, loop, {"id": "use", "run": "true"}]})
    worker = pool.worker()
    worker.finish(worker.take())
    one, two = worker.assignments(5)
    assert [(each.job, each.phase, each.round) for each in (one, two)] == [("1.2", "work", 1), ("1.3", "work", 1)]
    worker.finish(two.attempt, artifacts=[artifact(pool, "m", b"two")])
    worker.finish(one.attempt, artifacts=[artifact(pool, "m", b"one")])
    checks = worker.assignments(5)
    assert [(each.job, each.params, inputs_of(each)) for each in checks] == [
        ("1.5", {"n": 2}, [("1.3", "m")]),
        ("1.6", {"n": 1}, [("1.2", "m")]),
    ]
    worker.finish("1.6/1")
    worker.finish("1.5/1", "failed")
    assert pool.job("1.4").state == "queued"
    work(pool, worker, b"two again")
    check(worker, True)
    [use] = worker.assignments()
    assert inputs_of(use) == [("1.2", "inputs/refine/2/m"), ("1.7", "inputs/refine/3/m")]
    worker.finish(use.attempt)
    assert pool.run(1).state == "succeeded"
    assert pool.audit().clean


def test_one_failed_point_fails_the_step_but_not_the_other_loops(pool: InProcessCoordinator) -> None:
    pool.submit({"steps": [{"id": "a", **LOOP, "sweep": {"grid": {"n": [1, 2]}}}, {"id": "b", "run": "true"}]})
    worker = pool.worker()
    one, two = worker.start(2)
    worker.finish(one, "failed")
    worker.finish(two)
    check(worker, False)
    work(pool, worker)
    check(worker, True)
    assert (pool.job("1.3").state, pool.run(1).state) == ("canceled", "failed")
    assert pool.audit().clean


def test_the_counts_are_right_at_all_times(pool: InProcessCoordinator) -> None:
    pool.submit(STEPS)
    worker = pool.worker()

    def counts() -> tuple[int, int, int]:
        assert pool.audit().clean
        now = pool.run(1).jobs
        return now.queued, now.running, now.succeeded

    assert counts() == (2, 0, 0)
    attempt = worker.take()
    assert counts() == (1, 1, 0)
    worker.finish(attempt)
    assert counts() == (2, 0, 1)
    attempt = worker.take()
    worker.finish(attempt, "failed")
    assert counts() == (2, 0, 2)
    work(pool, worker)
    check(worker, True)
    assert counts() == (1, 0, 4)
    worker.finish(worker.take())
    assert (counts(), pool.run(1).state) == ((0, 0, 5), "succeeded")


def test_several_loops_can_go_on_in_one_transaction(pool: InProcessCoordinator) -> None:
    """Their jobs take different indexes."""
    pool.submit(LOOP, sweep={"grid": {"n": [1, 2, 3]}})
    worker = pool.worker()
    attempts = worker.start(3)
    body = m.Finish(session=worker.session, results=[m.Result(attempt=each, outcome="succeeded") for each in attempts])
    finish(pool.ctx, worker.actor, worker.name, body)
    assert [job[:3] for job in jobs_of(pool)[3:]] == [("1.4", "verify", 1), ("1.5", "verify", 1), ("1.6", "verify", 1)]
    assert pool.audit().clean


def test_a_repeated_result_makes_no_second_job(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    attempt = worker.take()
    assert worker.finish(attempt) == "accepted"
    assert worker.finish(attempt) == "already_recorded"
    assert worker.finish(attempt, "failed") == "stale"
    assert len(jobs_of(pool)) == 2


def test_the_schema_refuses_a_round_that_exists(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    copy = (
        "INSERT INTO job (id, step, spec_id, class_id, submitter_id, rank, params, state, ready, point, round, phase)"
        " SELECT id + 7, step, spec_id, class_id, submitter_id, rank, params, state, ready, point, round, phase"
        " FROM job"
    )
    with pytest.raises(Exception, match=r"(?i)unique"):
        pool.ctx.store.write(lambda tx: tx.run(copy))
    assert len(jobs_of(pool)) == 1


def test_a_loop_that_could_exceed_the_limit_of_jobs_is_refused_at_its_line(pool: InProcessCoordinator) -> None:
    sweep = {"grid": {"n": {"from": 1, "to": 100}}}
    pool.submit(LOOP, sweep=sweep, repeat={"until": "true", "most": JOBS // 200})
    with pytest.raises(Refusal, match="with two jobs per round, there may be 100,200 jobs") as refused:
        pool.submit(LOOP, sweep=sweep, repeat={"until": "true", "most": JOBS // 200 + 1})
    assert [problem["path"] for problem in refused.value.details["problems"]] == ["repeat.most"]


def test_results_have_one_row_per_point_that_of_the_last_work(pool: InProcessCoordinator) -> None:
    pool.submit({"steps": [{"id": "a", **LOOP, "sweep": {"grid": {"n": [1, 2]}}}, {"id": "b", "run": "true"}]})
    worker = pool.worker()
    one, two = worker.start(2)
    worker.finish(one, result={"error": 0.5})
    worker.finish(two, result={"error": 0.7})
    assert worker.start(2) == ["1.4/1", "1.5/1"]
    worker.finish("1.5/1", "failed")
    worker.finish("1.4/1")
    work(pool, worker, result={"error": 0.1})

    def rows() -> list[tuple[Any, ...]]:
        return [(row.job, row.params, row.result, row.round, row.verified) for row in results(pool.ctx, 1)]

    assert rows() == [
        ("1.1", {"n": 1}, {"error": 0.5}, 1, True),
        ("1.6", {"n": 2}, {"error": 0.1}, 2, None),
        ("1.3", {}, None, None, None),
    ]
    check(worker, False)
    assert rows()[1] == ("1.8", {"n": 2}, None, 3, None)
    work(pool, worker, result={"error": 0.2})
    check(worker, False)
    assert rows()[1] == ("1.8", {"n": 2}, {"error": 0.2}, 3, False)


def test_a_later_round_is_as_old_as_itself(pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(pool.ctx.metrics, "observe_waits", waits.extend)
    pool.submit(LOOP)
    pool.sleep(1000)
    worker = pool.worker()
    work(pool, worker)
    check(worker, True)
    assert (waits[0] >= 1000, waits[1]) == (True, 0)
    first, second = pool.job("1.1"), pool.job("1.2")
    assert (second.created_at - first.created_at).total_seconds() >= 1000
    assert pool.run(1).created_at == first.created_at
    assert pool.ctx.store.read(lambda reader: reader.value("SELECT count(*) FROM job WHERE created_at IS NULL")) == 1


def test_why_says_what_a_check_answered(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    assert why(pool.ctx, 1, 1).summary == "Succeeded on pc1, attempt 1. Its check is job 1.2."
    check(worker, False)
    assert why(pool.ctx, 1, 2).summary == "Not verified on pc1, attempt 1: exit code 1. Round 2 is job 1.3."
    work(pool, worker)
    check(worker, True)
    assert why(pool.ctx, 1, 4).summary == "Verified on pc1, attempt 1: the loop is complete."


def decoded(spec: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(spec))


def file_of(pool: InProcessCoordinator, data: bytes) -> dict[str, Any]:
    made = artifact(pool, "x", data)
    return {"sha256": made.sha256, "size": made.size}
