"""A small job file cannot become hundreds of megabytes, neither in the database nor in the answers to workers."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.workers.assignments import CLAIM_BYTES
from deborgen_shared import messages as m
from deborgen_shared.errors import Refusal
from support.in_process import InProcessCoordinator


def problem(pool: InProcessCoordinator, **document: Any) -> tuple[str, str]:
    with pytest.raises(Refusal) as refused:
        pool.submit(**document)
    [found] = refused.value.details["problems"]
    return found["path"], found["message"]


def size(assignments: list[m.Assignment]) -> int:
    return sum(len(msgspec.json.encode(each)) for each in assignments)


def test_fault_94_parameters_that_would_fill_the_database_are_refused_at_submit(pool: InProcessCoordinator) -> None:
    """Seen to fail when the parameters of a run have no limit."""
    long = [f"{number:04000}" for number in range(8)]
    sweep = {"grid": {"text": long, "n": {"from": 1, "to": 12_000}}}
    where, message = problem(pool, sweep=sweep)
    assert (where, message) == ("sweep", "the parameters of all jobs take 369 MiB, but the limit is 61 MiB")


@pytest.mark.parametrize(
    "texts",
    [
        {"run": "${{ a }} " * 10_000},
        {"run": ["echo", *["${{ a }}" * 20] * 500]},
        {"run": "true", "env": {f"V{number}": "${{ a }}" * 20 for number in range(500)}},
    ],
)
def test_fault_94_lookups_that_make_a_job_long_are_refused_at_submit(
    pool: InProcessCoordinator, texts: dict[str, Any]
) -> None:
    """Seen to fail when the length of a parameter's value does not count."""
    where, message = problem(pool, **texts, sweep={"grid": {"a": ["'" * 4096, "short"]}})
    assert where.partition("[")[0].partition(".")[0] == next(reversed(texts))
    assert message.startswith("with its parameters filled in, this job has texts of up to ")
    assert message.endswith(" MiB, but the limit is 1 MiB")
    assert pool.submit(**texts, sweep={"grid": {"a": [1, 2.5, "short"]}}).jobs.queued == 3


def test_fault_94_one_claim_of_many_large_jobs_has_an_answer_of_bounded_size(pool: InProcessCoordinator) -> None:
    """Seen to fail when a claim takes as many jobs as fit the machine."""
    pool.submit(run="true\n" + "#" * 100_000, sweep={"grid": {"n": {"from": 1, "to": 200}}}, resources={"cpus": 0.1})
    worker = pool.worker()
    claimed: list[str] = []
    while given := worker.assignments(256):
        assert size(given) < 1.1 * CLAIM_BYTES
        claimed += [each.attempt for each in given]
    assert len(set(claimed)) == 200


def test_fault_94_the_inputs_of_a_step_that_needs_a_wide_one_have_an_answer_of_bounded_size(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when a claim takes as many jobs as fit the machine."""
    many = {"sweep": {"grid": {"n": {"from": 1, "to": 120}}}, "resources": {"cpus": 0.1}}
    pool.submit(steps=[{"id": "wide", "run": "true", **many, "artifacts": ["*"]}, {"id": "all", "run": "true", **many}])
    worker = pool.worker(cpus=1000)
    digest = hashlib.sha256(b"x").hexdigest()
    blobs.put(pool.ctx, digest, [b"x"])
    for attempt in worker.claim(256):
        files = [m.Artifact(path=f"{'long-name-' * 15}{number}", sha256=digest, size=1) for number in range(10)]
        assert worker.finish(attempt, artifacts=files) == "accepted"
    claimed: list[str] = []
    while given := worker.assignments(256):
        assert len(given[0].inputs) == 1200
        assert size(given) < 1.1 * CLAIM_BYTES
        claimed += [each.attempt for each in given]
    assert len(set(claimed)) == 120
