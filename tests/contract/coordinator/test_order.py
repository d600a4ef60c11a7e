"""Which job comes first, and which worker gets it."""

from __future__ import annotations

from typing import Any

from deborgen_coordinator.operations.jobs import why as explaining
from deborgen_coordinator.operations.workers.heartbeat import heartbeat
from deborgen_coordinator.storage.transactions import Tx
from deborgen_shared import messages as m
from support.in_process import GIB, InProcessCoordinator


def sweep(count: int) -> dict[str, Any]:
    return {"grid": {"n": {"from": 1, "to": count}}}


def test_first_come_first_served_within_a_priority(pool: InProcessCoordinator) -> None:
    pool.submit(sweep=sweep(2))
    pool.submit(priority=5, sweep=sweep(2))
    pool.submit(resources={"cpus": 2})
    assert pool.worker().claim(10) == ["2.1/1", "2.2/1", "1.1/1", "1.2/1", "3.1/1"]


def test_jobs_of_different_classes_share_one_order(pool: InProcessCoordinator) -> None:
    for at in range(6):
        pool.submit(resources={"cpus": 1 + at % 3})
    assert pool.worker().claim(10) == [f"{n}.1/1" for n in range(1, 7)]


def test_a_job_goes_only_to_a_worker_whose_labels_and_resources_fit(pool: InProcessCoordinator) -> None:
    pool.submit(requires={"gpu": "rtx*"})
    pool.submit(resources={"memory": "32GiB"})
    pool.submit(image="python:3.12-slim")
    pool.submit(network="internet")
    pool.submit()
    small = pool.worker("small", memory=8 * GIB)
    assert small.claim(10) == ["5.1/1"]
    large = pool.worker(
        "large", labels={"gpu": "RTX 4090", "runner.container": True, "network.internet": True}, memory=64 * GIB
    )
    assert large.claim(10) == ["1.1/1", "2.1/1", "3.1/1", "4.1/1"]


def test_jobs_that_release_0_1_stored_go_to_the_workers_that_run_them(pool: InProcessCoordinator) -> None:
    """Seen to fail when a stored `podman` is not read as a container."""
    pool.submit(image="python:3.12-slim")
    pool.submit()
    pool.ctx.store.write(_store_the_words_of_release_0_1)
    pool.restart()
    pool.submit(image="python:3.12-slim")
    pool.submit(image="python:3.13-slim")
    assert pool.worker("processes").claim(10) == ["2.1/1"]
    containers = {"runner.process": False, "runner.container": True}
    assert pool.worker("containers", labels=containers).claim(10) == ["1.1/1", "3.1/1", "4.1/1"]


def _store_the_words_of_release_0_1(tx: Tx) -> None:
    for word, first in (("container", "podman"), ("process", "subprocess")):
        tx.run("UPDATE class SET needs = replace(needs, ?, ?)", (f'"runner":"{word}"', f'"runner":"{first}"'))


def test_jobs_are_packed_into_what_is_free(pool: InProcessCoordinator) -> None:
    pool.submit(sweep=sweep(10), resources={"cpus": 3})
    pool.submit(sweep=sweep(10))
    given = pool.worker(cpus=8).claim(20, free=m.Resources(cpus=8, memory=GIB * 100))
    assert given == ["1.1/1", "1.2/1", "2.1/1", "2.2/1"]


def test_jobs_that_run_one_after_another_need_not_fit_together(pool: InProcessCoordinator) -> None:
    pool.submit(sweep=sweep(10), resources={"cpus": 3})
    pool.submit(resources={"cpus": 5})
    pool.submit(sweep=sweep(10))
    worker = pool.worker(cpus=8)
    given = worker.claim(13, free=m.Resources(cpus=4, memory=GIB * 100), ahead=True)
    assert given == [f"1.{n}/1" for n in range(1, 11)] + [f"3.{n}/1" for n in range(1, 4)], "none is larger than 4"


def test_fair_share_serves_the_submitter_with_the_least_usage(make_pool: Any) -> None:
    pool = make_pool(scheduler="fair")
    worker = pool.worker()
    pool.submit(by="alice", sweep=sweep(3))
    worker.finish(worker.take(), seconds=500)
    pool.submit(by="bob", sweep=sweep(3))
    assert worker.claim(4) == ["2.1/1", "2.2/1", "2.3/1", "1.2/1"]


def test_fair_share_takes_turns_between_equals(make_pool: Any) -> None:
    pool = make_pool(scheduler="fair")
    pool.submit(by="alice", sweep=sweep(4))
    pool.submit(by="bob", sweep=sweep(4))
    assert pool.worker().claim(4) == ["1.1/1", "2.1/1", "1.2/1", "2.2/1"]


def test_the_limit_of_running_jobs_applies_to_each_submitter(make_pool: Any) -> None:
    pool = make_pool(max_running_per_submitter=2)
    pool.submit(by="alice", sweep=sweep(5))
    pool.submit(by="bob", sweep=sweep(1))
    worker = pool.worker()
    assert worker.claim(10) == ["1.1/1", "1.2/1", "2.1/1"]
    assert worker.claim(10) == []
    worker.beat()
    worker.finish("1.1/1")
    assert worker.claim(10) == ["1.3/1"]


def test_identical_specs_are_stored_once(pool: InProcessCoordinator) -> None:
    for _ in range(5):
        pool.submit(sweep=sweep(20))
    pool.submit(resources={"cpus": 2})
    count = pool.ctx.store.read(lambda reader: [reader.one(f"SELECT count(*) FROM {t}") for t in ("spec", "class")])
    assert count == [(2,), (2,)]


def test_why_has_one_line_per_worker(pool: InProcessCoordinator) -> None:
    pool.submit(resources={"memory": "16GiB"})
    paused = pool.worker("pc1", memory=64 * GIB)
    paused.beat(state="paused", reason="paused by its owner until 18:00")
    pool.worker("pc2", memory=8 * GIB)
    busy = pool.worker("pc3", memory=64 * GIB)
    busy_body = m.Heartbeat(session=busy.session, free=m.Resources(cpus=1, memory=8 * GIB))

    heartbeat(pool.ctx, busy.actor, "pc3", busy_body)
    why = explaining.why(pool.ctx, 1, 1)
    assert why.summary == "Queued: no worker can run it right now."
    assert [(line.worker, line.reason) for line in why.workers] == [
        ("pc1", "paused by its owner until 18:00"),
        ("pc2", "has 8GiB of memory in total, the job asks for 16GiB"),
        ("pc3", "has 8GiB of memory free, the job asks for 16GiB"),
    ]


def test_a_submit_warns_if_no_worker_can_run_a_job(pool: InProcessCoordinator) -> None:
    assert "no worker has joined yet" in pool.submit().warnings[0]
    pool.clock.pass_by(2)
    pool.worker("pc1")
    pool.clock.pass_by(2)
    assert pool.submit().warnings == []
    assert pool.submit(requires={"gpu": "rtx*"}).warnings == [
        "no worker can run this: pc1 has no label 'gpu', the job requires gpu: rtx*"
    ]
