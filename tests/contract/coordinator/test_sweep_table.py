"""The results of a step as columns agree with the results table, on both databases."""

from __future__ import annotations

import math
from typing import Any

import pytest

from deborgen_coordinator.operations.runs import look, sweep_table
from deborgen_coordinator.operations.runs.retry import retry_run
from deborgen_coordinator.operations.runs.sweep_table import best, ranked
from deborgen_shared.errors import Refusal
from deborgen_shared.messages import Retry
from support.in_process import InProcessCoordinator, person

AXES = {"lr": [0.1, 0.01], "model": ["a", 'b\'s "c", {}'], "seed": {"from": 1, "to": 3}}
HOSTILE = 'v",{}[]null'


def swept(pool: InProcessCoordinator, **more: Any) -> int:
    """A run of twelve jobs: the fourth has failed, and the last one waits."""
    run = pool.submit(sweep={"grid": AXES}, **more).id
    worker = pool.worker()
    for index in range(1, 12):
        attempt = worker.take()
        if index == 4:
            worker.finish(attempt, "failed")
        else:
            worker.finish(attempt, result={"loss": 1 / index, "text": "x", "ok": True, HOSTILE: index})
    return run


@pytest.fixture(params=[10_000, 5])
def read_in_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_table, "PART", request.param)


@pytest.mark.usefixtures("read_in_parts")
def test_the_columns_agree_with_the_results_table(pool: InProcessCoordinator) -> None:
    run = swept(pool)
    table, steps = sweep_table.sweep_table(pool.ctx, run)
    rows = list(look.results(pool.ctx, run))
    assert steps == [None]
    assert [table.job(at) for at in range(table.jobs)] == [row.job for row in rows]
    for name, axis in table.axes.items():
        assert axis.column == [row.params[name] for row in rows]
    assert table.axes["seed"].values == [1, 2, 3]
    assert sorted(table.names) == sorted(["loss", HOSTILE])
    assert table.numbers("loss") == [(row.result or {}).get("loss") for row in rows]
    assert table.numbers(HOSTILE)[10] == 11
    assert [row.id for row in sweep_table.rows(pool.ctx, table, [3, 0])] == [table.ids[3], table.ids[0]]


def test_jobs_are_found_by_the_values_of_their_axes(pool: InProcessCoordinator) -> None:
    table, _ = sweep_table.sweep_table(pool.ctx, swept(pool))
    assert [table.job(at) for at in table.at({"lr": 1, "model": 0})] == ["1.7", "1.8", "1.9"]
    assert [table.job(at) for at in table.at({"lr": 1, "model": 1, "seed": 2})] == ["1.12"]
    assert len(table.at({})) == 12
    assert table.at({"lr": 7}) == table.at({"lr": -1}) == []


def test_a_retry_has_only_some_of_the_jobs(pool: InProcessCoordinator) -> None:
    run = swept(pool)
    pool.cancel(f"{run}.12")
    retry, _ = retry_run(pool.ctx, person("alice"), run, Retry(only="failed"), None, "")
    table, _ = sweep_table.sweep_table(pool.ctx, retry.id)
    assert [table.job(at) for at in range(table.jobs)] == [f"{retry.id}.4"]
    assert table.axes["seed"].column == [1]


def test_a_run_without_a_sweep_has_no_axes_and_a_step_is_chosen_by_name(pool: InProcessCoordinator) -> None:
    steps = [{"id": "prepare", "run": "a"}, {"id": "train", "run": "b", "sweep": {"grid": {"n": [1, 2]}}}]
    run = pool.submit({"steps": steps}).id
    table, names = sweep_table.sweep_table(pool.ctx, run)
    assert (table.step, names, table.jobs, table.names) == ("train", ["prepare", "train"], 2, [])
    table, _ = sweep_table.sweep_table(pool.ctx, run, "prepare")
    assert (table.axes, table.jobs) == ({}, 1)
    with pytest.raises(Refusal, match="no step 'test'"):
        sweep_table.sweep_table(pool.ctx, run, "test")


def test_while_a_run_goes_on_new_results_are_seen_after_two_seconds(pool: InProcessCoordinator) -> None:
    run = swept(pool)
    before, _ = sweep_table.sweep_table(pool.ctx, run)
    worker = pool.worker("pc2")
    worker.finish(worker.take(), result={"loss": 0.0})
    pool.clock.pass_by(sweep_table.KEPT_SECONDS)
    after, _ = sweep_table.sweep_table(pool.ctx, run)
    assert (before.numbers("loss")[11], after.numbers("loss")[11]) == (None, 0.0)
    assert after.axes is before.axes
    assert sweep_table.sweep_table(pool.ctx, run)[0] is after
    pool.clock.pass_by(3600)
    ended, _ = sweep_table.sweep_table(pool.ctx, run)
    pool.clock.pass_by(3600)
    assert sweep_table.sweep_table(pool.ctx, run)[0] is ended, "an ended run never changes"


def test_results_that_are_too_large_are_left_out(pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_table, "PART", 5)
    monkeypatch.setattr(sweep_table, "MOST_TEXT", 100)
    monkeypatch.setattr(sweep_table, "LONGEST_RESULT", 10)
    table, _ = sweep_table.sweep_table(pool.ctx, swept(pool))
    assert (table.jobs, table.left_out) == (5, 7)
    assert table.numbers("loss") == [None] * 5


def test_the_best_number_is_the_first_of_equal_ones_and_never_nan() -> None:
    numbers = [None, math.nan, 2.0, 1.0, 1.0, math.inf, 2.0]
    assert best(numbers, largest=False) == 3
    assert best([None, 2.0, 2.0], largest=True) == 1
    assert best([None, math.nan], largest=True) is None
    assert ranked(numbers, 3, largest=False) == [3, 4, 2]
    assert ranked(numbers, 3, largest=True) == [5, 2, 6]


def test_a_loop_shows_the_result_of_its_newest_work(pool: InProcessCoordinator) -> None:
    repeat = {"until": "python good.py", "most": 3}
    run = pool.submit(run="python refine.py", repeat=repeat, sweep={"grid": {"lr": [1, 2]}}).id
    worker = pool.worker()
    for number in range(1, 7):
        [given] = worker.assignments()
        is_work = given.phase == "work"
        worker.finish(
            given.attempt, "succeeded" if is_work else "failed", **({"result": {"loss": number}} if is_work else {})
        )
    table, _ = sweep_table.sweep_table(pool.ctx, run)
    rows = list(look.results(pool.ctx, run))
    assert [table.job(at) for at in range(table.jobs)] == [row.job for row in rows]
    assert table.numbers("loss") == [(row.result or {}).get("loss") for row in rows]
    assert table.axes["lr"].column == [1, 2]
