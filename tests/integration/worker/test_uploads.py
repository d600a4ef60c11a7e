"""Artifacts that cannot be uploaded, however often the worker tries: an infrastructure failure."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from deborgen_worker.outbox import UPLOAD_TRIES
from support.coordinator import CoordinatorProcess
from support.pool import Pool
from support.targeted_proxy import TargetedProxy
from support.waiting import wait_until
from support.worker import WorkerProcess

Make = Callable[..., WorkerProcess]
#: Its artifact is unique, because a blob that the store has already would not be uploaded.
SCRIPT = "echo hello; echo $DEBORGEN_JOB_ID > out.txt"


@pytest.fixture
def proxy(coordinator: CoordinatorProcess) -> Iterator[TargetedProxy]:
    with TargetedProxy(coordinator.url) as proxy:
        yield proxy


def damage_uploads(line: str, _body: bytes) -> str:
    """Flip a bit of every blob that is uploaded. The store then refuses it because of its digest."""
    return "flip" if line.startswith(("PUT /v1/blobs/", "PATCH /v1/blobs/")) else ""


def forget_blobs(coordinator: CoordinatorProcess) -> Callable[[str, bytes], str]:
    """Let the store lose every blob just before a result that names one, so that the coordinator finds it missing."""

    def aim(line: str, body: bytes) -> str:
        if "/finish" in line and b'"sha256"' in body:
            with closing(sqlite3.connect(coordinator.data_dir / "deborgen.sqlite", timeout=20)) as database, database:
                database.execute("DELETE FROM blob")
        return ""

    return aim


def tries(proxy: TargetedProxy, word: str) -> int:
    return len([line for line, _ in proxy.log if word in line])


def first_attempt(pool: Pool, run: int) -> dict[str, Any]:
    """The job's first attempt, once it has ended."""
    wait_until(lambda: pool.job(run)["history"][:1] and pool.job(run)["history"][0]["outcome"], what="attempt 1 to end")
    return dict(pool.job(run)["history"][0])


def test_rule_06_an_upload_that_is_always_refused_is_an_error_and_the_job_is_retried_elsewhere(
    pool: Pool, new_worker: Make, proxy: TargetedProxy
) -> None:
    """Seen to fail when the worker never gives up, and when it gives up without its log."""
    proxy.aim = damage_uploads
    worker = new_worker(url=proxy.url, labels="test=damaged").start()
    # The second machine must be online when the backoff ends: alone, the first one would get the job again.
    retry = {"backoff": "15s"}
    run = pool.submit(run=SCRIPT, artifacts=["out.txt"], requires={"test": "damaged"}, max_attempts=2, retry=retry)
    ended = first_attempt(pool, run)
    assert (ended["outcome"], ended["worker"]) == ("error", worker.name)
    assert "the output could not be uploaded: " in ended["reason"]
    assert tries(proxy, "PUT /v1/blobs/") == UPLOAD_TRIES + 1
    job = pool.job(run)
    assert (job["state"], job["attempts"], job["reason"]) == ("queued", 1, ended["reason"])
    assert job["artifacts"] == [], "a result counts with all its artifacts, or not at all"
    other = new_worker(labels="test=damaged").start()
    wait_until(lambda: worker.status()["unsent"] == 0, what="the worker to be rid of the result")

    job = pool.until(run)
    assert (job["state"], job["attempts"], job["worker"]) == ("succeeded", 2, other.name)
    assert [each["path"] for each in job["artifacts"]] == ["out.txt"]
    assert [pool.log(run, attempt) for attempt in (1, 2)] == [b"hello\n"] * 2


def test_rule_06_an_upload_that_is_always_refused_fails_the_job_in_its_last_attempt(
    pool: Pool, new_worker: Make, proxy: TargetedProxy
) -> None:
    """Its log is too long to go with the result. Seen to fail when the worker reports a failure of the program, and
    when the log is dropped with the artifacts.
    """
    proxy.aim = damage_uploads
    new_worker(url=proxy.url, labels="test=last").start()
    run = pool.submit(run=f"{SCRIPT}; seq 1 100000", artifacts=["out.txt"], requires={"test": "last"}, max_attempts=1)
    job = pool.until(run)
    assert (job["state"], job["attempts"], [each["outcome"] for each in job["history"]]) == ("failed", 1, ["error"])
    assert "the output could not be uploaded: " in job["reason"]
    assert pool.log(run) == b"hello\n" + b"".join(b"%d\n" % number for number in range(1, 100_001))


def test_rule_12_a_result_whose_blobs_are_always_lost_ends_as_an_error_and_never_without_them(
    pool: Pool, new_worker: Make, proxy: TargetedProxy, coordinator: CoordinatorProcess
) -> None:
    """Seen to fail when the worker never gives up, and when the coordinator takes a result without its blobs."""
    proxy.aim = forget_blobs(coordinator)
    worker = new_worker(url=proxy.url, labels="test=lost").start()
    run = pool.submit(run=SCRIPT, artifacts=["out.txt"], requires={"test": "lost"}, max_attempts=2)
    ended = first_attempt(pool, run)
    assert ended["outcome"] == "error"
    assert "still lacks the artifacts" in ended["reason"]
    assert tries(proxy, "PUT /v1/blobs/") == UPLOAD_TRIES + 1
    job = pool.job(run)
    assert (job["state"], job["attempts"], job["artifacts"]) == ("queued", 1, [])
    assert pool.log(run, 1) == b"hello\n"
    wait_until(lambda: worker.status()["unsent"] == 0, what="the worker to be rid of the result")
    pool.admin.post(f"/v1/runs/{run}/cancel", json={})
