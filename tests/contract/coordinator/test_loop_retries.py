"""Retries of loops: from their first round, or from where they stopped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contract.coordinator.test_loops import LOOP, STEPS, check, inputs_of, jobs_of, work
from contract.coordinator.test_steps import artifact
from deborgen_coordinator.operations.maintenance.cleanup import Cleaner
from deborgen_coordinator.operations.runs.look import results
from deborgen_coordinator.operations.runs.retry import retry_run
from deborgen_shared import messages as m
from deborgen_shared.errors import Refusal
from support.in_process import InProcessCoordinator, person


def retry(pool: InProcessCoordinator, run: int, rounds: m.Rounds, only: m.Retried = "failed") -> m.Run:
    return retry_run(pool.ctx, person("alice"), run, m.Retry(only=only, rounds=rounds))[0]


def rounds_of(pool: InProcessCoordinator, run: int) -> list[tuple[str, str | None, int | None]]:
    """Every job of a run: id, phase and round."""
    return [job[:3] for job in jobs_of(pool, run)]


def test_a_retry_begins_with_the_first_round(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    check(worker, False)
    worker.finish(worker.take(), "failed")
    assert retry(pool, 1, "first").jobs.queued == 1
    assert rounds_of(pool, 2) == [("2.1", "work", 1)]
    given = work(pool, worker, b"again")
    assert inputs_of(given) == []
    assert inputs_of(check(worker, True)) == [("2.1", "m")]
    assert pool.run(2).state == "succeeded"
    assert pool.audit().clean


def test_a_retry_goes_on_after_the_answer_of_the_newest_check(pool: InProcessCoordinator) -> None:
    """The work of round 2 failed: it is due again, with the artifacts of round 1."""
    pool.submit(STEPS)
    worker = pool.worker()
    work(pool, worker, b"one")
    check(worker, False)
    worker.finish(worker.take(), "failed")
    retry(pool, 1, "last")
    assert rounds_of(pool, 2) == [("2.1", "work", 2), ("2.2", None, None)]
    given = work(pool, worker, b"two")
    assert (given.round, inputs_of(given)) == (2, [("1.1", "inputs/previous/m")])
    assert inputs_of(check(worker, True)) == [("2.1", "m")]
    [use] = worker.assignments()
    assert inputs_of(use) == [("2.1", "inputs/refine/m")]
    worker.finish(use.attempt)
    assert rounds_of(pool, 2)[2:] == [("2.3", "verify", 2)]
    assert pool.run(2).state == "succeeded"
    assert pool.audit().clean


def test_a_retry_asks_a_check_again_that_gave_no_answer(pool: InProcessCoordinator) -> None:
    """The work was done in the earlier run. Its artifacts and its results are found there."""
    pool.submit(STEPS)
    worker = pool.worker()
    work(pool, worker, b"one")
    check(worker, False)
    work(pool, worker, b"two", result={"error": 0.1})
    worker.finish(worker.take(), "timeout")
    retry(pool, 1, "last")
    assert rounds_of(pool, 2) == [("2.1", "verify", 2), ("2.2", None, None)]
    assert inputs_of(check(worker, True)) == [("1.4", "m")]
    [use] = worker.assignments()
    assert inputs_of(use) == [("1.4", "inputs/refine/m")]
    worker.finish(use.attempt)
    rows = [(row.job, row.result, row.round, row.verified, row.retry_of) for row in results(pool.ctx, 2)]
    assert rows == [("1.4", {"error": 0.1}, 2, True, None), ("2.2", None, None, None, None)]
    rows = [(row.job, row.result, row.round, row.verified, row.retry_of) for row in results(pool.ctx, 1, retries=True)]
    assert rows == [("1.4", {"error": 0.1}, 2, True, "1.4"), ("2.2", None, None, None, "1.2")]
    assert pool.audit().clean


def test_a_loop_that_used_up_its_rounds_gets_as_many_again(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP, repeat={"until": "true", "most": 2})
    worker = pool.worker()
    for _ in range(2):
        work(pool, worker)
        check(worker, False)
    assert pool.job("1.4").reason == "not verified after 2 rounds"
    retry(pool, 1, "last")
    assert rounds_of(pool, 2) == [("2.1", "work", 3)]
    assert inputs_of(work(pool, worker)) == [("1.3", "inputs/previous/m")]
    check(worker, False)
    assert inputs_of(work(pool, worker)) == [("2.1", "inputs/previous/m")]
    check(worker, False)
    assert pool.job("2.4").reason == "not verified after 4 rounds"
    assert pool.audit().clean


def test_a_retry_of_a_retry_goes_on_where_that_one_began_if_it_did_no_work(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    check(worker, False)
    worker.finish(worker.take(), "failed")
    retry(pool, 1, "last")
    worker.finish(worker.take(), "error")
    retry(pool, 2, "last")
    assert rounds_of(pool, 3) == [("3.1", "work", 2)]
    assert inputs_of(work(pool, worker)) == [("1.1", "inputs/previous/m")]
    worker.finish(worker.take(), "timeout")
    retry(pool, 3, "last")
    assert rounds_of(pool, 4) == [("4.1", "verify", 2)]
    worker.finish(worker.take(), "timeout")
    retry(pool, 4, "last")
    assert rounds_of(pool, 5) == [("5.1", "verify", 2)]
    assert inputs_of(check(worker, False)) == [("3.1", "m")]
    assert inputs_of(work(pool, worker)) == [("3.1", "inputs/previous/m")]
    assert pool.audit().clean


def test_each_loop_of_a_sweep_goes_on_where_it_stopped_and_keeps_its_index(pool: InProcessCoordinator) -> None:
    """The jobs that the retried loops add get numbers that no job of the first run was submitted with."""
    loop = {"id": "a", **LOOP, "sweep": {"grid": {"n": [1, 2, 3]}}}
    pool.submit({"steps": [loop, {"id": "b", "run": "true", "needs": [], "sweep": {"grid": {"n": [1, 2]}}}]})
    worker = pool.worker()
    one, two, three, *others = worker.start(5)
    worker.finish(one, artifacts=[artifact(pool, "m", b"one")])
    worker.finish(two, "failed")
    worker.finish(three, artifacts=[artifact(pool, "m", b"three")])
    for each in others:
        worker.finish(each)
    assert worker.start(2) == ["1.6/1", "1.7/1"]
    worker.finish("1.6/1")
    worker.finish("1.7/1", "out_of_memory")
    retry(pool, 1, "last")
    assert rounds_of(pool, 2) == [("2.2", "work", 1), ("2.3", "verify", 1)]
    two, three = worker.start(2)
    worker.finish(two)
    worker.finish(three, "failed")
    assert rounds_of(pool, 2)[2:] == [("2.6", "verify", 1), ("2.7", "work", 2)]
    assert worker.start(2) == ["2.6/1", "2.7/1"]
    worker.finish("2.6/1")
    worker.finish("2.7/1", artifacts=[artifact(pool, "m", b"three again")])
    check(worker, True)
    assert pool.run(2).state == "succeeded"
    rows = [(row.job, row.round, row.verified, row.retry_of) for row in results(pool.ctx, 1, retries=True)]
    assert rows[:3] == [("1.1", 1, True, None), ("2.2", 1, True, "1.2"), ("2.7", 2, True, "1.3")]
    assert pool.audit().clean


def test_a_canceled_loop_is_retried_as_one_job(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP, sweep={"grid": {"n": [1, 2]}})
    worker = pool.worker()
    first, _ = worker.start(2)
    pool.cancel("1")
    worker.finish(first)
    worker.finish("1.2/1", "canceled")
    assert pool.job("1.3").state == "canceled"
    with pytest.raises(Refusal, match="no failed jobs"):
        retry(pool, 1, "first")
    retry(pool, 1, "last", "canceled")
    assert rounds_of(pool, 2) == [("2.1", "verify", 1), ("2.2", "work", 1)]


def test_a_verified_loop_is_retried_with_all(pool: InProcessCoordinator) -> None:
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    check(worker, True)
    retry(pool, 1, "first", "all")
    assert rounds_of(pool, 2) == [("2.1", "work", 1)]
    retry(pool, 1, "last", "all")
    assert rounds_of(pool, 3) == [("3.1", "verify", 1)]


def test_a_step_gets_the_artifacts_of_a_loop_that_was_not_retried(pool: InProcessCoordinator) -> None:
    pool.submit(STEPS)
    worker = pool.worker()
    work(pool, worker, b"one")
    check(worker, False)
    work(pool, worker, b"two")
    check(worker, True)
    worker.finish(worker.take(), "failed")
    retry(pool, 1, "last")
    [use] = worker.assignments()
    assert (use.job, inputs_of(use)) == ("2.2", [("1.4", "inputs/refine/m")])


def test_a_loop_cannot_go_on_with_artifacts_that_were_removed(make_pool: Callable[..., InProcessCoordinator]) -> None:
    pool = make_pool(retention_days=1)
    pool.submit(LOOP)
    worker = pool.worker()
    work(pool, worker)
    worker.finish(worker.take(), "timeout")
    pool.clock.pass_by(2 * 86_400)
    assert Cleaner(pool.ctx).apply_retention() == 1
    with pytest.raises(Refusal, match="the artifacts of run 1 have been removed"):
        retry(pool, 1, "last")
    assert retry(pool, 1, "first").id == 2
