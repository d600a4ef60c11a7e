"""Retention: what goes, in which order, in small steps, and what stays."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import pytest

from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.maintenance import retention
from deborgen_coordinator.operations.maintenance.cleanup import Cleaner
from deborgen_coordinator.operations.maintenance.retention import DAY, Retention
from deborgen_shared import messages as m
from support.in_process import InProcessCoordinator, InProcessWorker


def finish_run(pool: InProcessCoordinator, worker: InProcessWorker, by: str, data: bytes, jobs: int = 1) -> int:
    """A finished run with one artifact per job; a moment later than the one before."""
    digest = hashlib.sha256(data).hexdigest()
    blobs.put(pool.ctx, digest, [data])
    run = pool.submit(sweep={"grid": {"n": {"from": 1, "to": jobs}}}, by=by).id
    for attempt in worker.start(jobs):
        worker.finish(attempt, artifacts=[m.Artifact(path="out", sha256=digest, size=len(data))])
    pool.clock.pass_by(1)
    return run


def has_artifacts(pool: InProcessCoordinator, run: int, index: int = 1) -> bool:
    return bool(pool.job(f"{run}.{index}").artifacts)


def test_each_submitter_keeps_the_newest_runs_that_fit(make_pool: Any) -> None:
    pool = make_pool(retention_bytes_per_submitter=250)
    worker = pool.worker()
    alice = [finish_run(pool, worker, "alice", bytes([n]) * 100) for n in range(4)]
    bob = [finish_run(pool, worker, "bob", b"b" * 200)]
    assert Retention(pool.ctx).apply() == 2
    assert [has_artifacts(pool, run) for run in (*alice, *bob)] == [False, False, True, True, True]
    assert Retention(pool.ctx).apply() == 0
    assert pool.audit().clean


def test_all_runs_together_keep_the_newest_that_fit_and_shared_blobs_count_once(make_pool: Any) -> None:
    pool = make_pool(retention_bytes=250)
    worker = pool.worker()
    shared = [finish_run(pool, worker, by, b"s" * 100) for by in ("alice", "bob", "carol")]
    assert Retention(pool.ctx).apply() == 0
    later = [finish_run(pool, worker, "alice", bytes([n]) * 100) for n in range(2)]
    assert Retention(pool.ctx).apply() == 3
    assert [has_artifacts(pool, run) for run in (*shared, *later)] == [False, False, False, True, True]


def test_a_large_run_goes_in_small_steps_and_a_stopped_one_goes_on_later(
    make_pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SLICE", 2)
    pool = make_pool(retention_days=7)
    run = finish_run(pool, pool.worker(cpus=8), "alice", b"x", jobs=5)
    pool.clock.pass_by(8 * DAY)
    stop = threading.Event()
    real, writes = pool.ctx.store.write, []

    def counted(work: Any) -> Any:
        writes.append(work)
        if len(writes) == 2:
            stop.set()
        return real(work)

    monkeypatch.setattr(pool.ctx.store, "write", counted)
    assert Retention(pool.ctx, stop).apply() == 0
    assert [has_artifacts(pool, run, index) for index in range(1, 6)] == [False] * 4 + [True]
    assert Retention(pool.ctx).apply() == 1
    assert not has_artifacts(pool, run, 5)
    assert len(writes) == 2 + 5, "three slices, the images, and the mark of the run"


def test_a_programs_own_events_go_and_the_audit_trail_stays(make_pool: Any) -> None:
    pool = make_pool(retention_days=7)
    worker = pool.worker()
    pool.submit()
    (attempt,) = worker.start()
    worker.send_events(attempt, m.ProgramEvent(type="epoch", payload={"n": 1}))
    worker.finish(attempt)
    before = pool.types(run=1)
    assert "job.event" in before
    pool.clock.pass_by(8 * DAY)
    Cleaner(pool.ctx).run_once()
    assert pool.types(run=1) == [each for each in before if each != "job.event"]
    assert pool.audit().clean
