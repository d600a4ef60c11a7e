"""The pool's default for the watchdog, and what people are told about a stalled job."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from deborgen_coordinator.operations.jobs.why import why
from support.in_process import InProcessCoordinator


def test_a_stalled_job_has_failed_and_why_prints_the_last_lines_of_its_log(pool: InProcessCoordinator) -> None:
    pool.submit(watchdog="20s")
    worker = pool.worker()
    attempt = worker.take()
    worker.write_log(attempt, b"".join(b"line %d\n" % number for number in range(1000)) + b"no end in sight")
    worker.finish(attempt, "stalled", reason="it wrote neither output nor progress for 20 s", log_size=8905)
    assert pool.job("1.1").state == "failed"
    assert pool.job("1.1").history[0].outcome == "stalled"
    answer = why(pool.ctx, 1, 1)
    assert answer.summary == "Failed on pc1: it wrote neither output nor progress for 20 s."
    assert answer.last_lines == [*(f"line {number}" for number in range(991, 1000)), "no end in sight"]
    assert pool.audit().clean


def test_a_stalled_job_is_tried_again_only_if_it_asks_for_that(pool: InProcessCoordinator) -> None:
    pool.submit(watchdog="20s", max_attempts=2, retry={"program": True, "backoff": "0s"})
    worker = pool.worker()
    worker.finish(worker.take(), "stalled")
    assert pool.job("1.1").state == "queued"
    assert why(pool.ctx, 1, 1).last_lines == []


def test_other_failures_show_no_log(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    worker.write_log(attempt, b"hello\n")
    worker.finish(attempt, "failed", log_size=6)
    assert why(pool.ctx, 1, 1).last_lines == []


def test_the_default_of_the_pool_is_recorded_at_submit(tmp_path: Path) -> None:
    pool = InProcessCoordinator(tmp_path, default_watchdog=600.0)
    pool.submit()
    pool.submit(watchdog="1h")
    pool.settings = dataclasses.replace(pool.settings, default_watchdog=0.0)
    pool.restart()
    pool.submit()
    specs = [pool.job(f"{run}.1").spec["watchdog"] for run in (1, 2, 3)]
    assert specs == [600.0, 3600.0, None]
    pool.stop()
