"""Pins: the first commit for each run, repository and ref counts, for all its jobs and its retries."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from deborgen_coordinator.operations.attempts import pins
from deborgen_coordinator.operations.runs import retry
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import CommitToPin, Retry
from support.in_process import PAST_LEASE, InProcessCoordinator, InProcessWorker, person

URL = "https://example.org/team/solver.git"
ONE, TWO = "1" * 40, "2" * 40
WORKSPACE = {"git": URL, "ref": "main"}


def git_worker(pool: InProcessCoordinator, name: str) -> InProcessWorker:
    worker = InProcessWorker(pool, name, {"git.https": True})
    worker.register()
    return worker


def pin(worker: InProcessWorker, attempt: str, commit: str, repo: str = URL, ref: str = "main") -> str:
    job, _, number = attempt.partition("/")
    run, _, index = job.partition(".")
    body = CommitToPin(session=worker.session, repo=repo, ref=ref, commit=commit)
    which = AttemptId(int(run), int(index), int(number))
    return pins.pin(worker.coordinator.ctx, worker.actor, which, body).commit


def test_the_first_commit_counts_for_the_run_and_its_retries(pool: InProcessCoordinator) -> None:
    pool.submit({"workspace": WORKSPACE, "sweep": {"grid": {"n": [1, 2, 3]}}})
    one, two = git_worker(pool, "pc1"), git_worker(pool, "pc2")
    [first], [second] = one.assignments(), two.assignments()
    assert first.commit == second.commit == ""
    assert pool.run(1).commit is None
    assert pin(one, first.attempt, ONE) == ONE
    assert pin(two, second.attempt, TWO) == ONE, "it has looked later, and the answer names the winner"
    assert pin(one, first.attempt, TWO) == ONE, "a repeat changes nothing"
    shown = pool.run(1)
    assert (shown.workspace_source, shown.repo_url, shown.repo_ref, shown.commit) == ("git", URL, "main", ONE)
    assert [event.data["commit"] for event in pool.events(run=1) if event.type == "commit.pinned"] == [ONE]
    [third] = one.assignments()
    assert third.commit == ONE
    for worker, attempt in ((one, first.attempt), (two, second.attempt), (one, third.attempt)):
        worker.finish(attempt)
    again, _ = retry.retry_run(pool.ctx, person("alice"), 1, Retry(only="all"))
    assert again.commit == ONE
    assert pool.audit().clean


def test_another_run_looks_for_itself(pool: InProcessCoordinator) -> None:
    pool.submit({"workspace": WORKSPACE})
    pool.submit({"workspace": WORKSPACE})
    worker = git_worker(pool, "pc1")
    first, second = worker.assignments(2)
    assert [pin(worker, first.attempt, ONE), pin(worker, second.attempt, TWO)] == [ONE, TWO]


def test_the_person_who_submits_may_know_the_commit(pool: InProcessCoordinator) -> None:
    known = pool.submit({"workspace": {**WORKSPACE, "commit": ONE}})
    exact = pool.submit({"workspace": {"git": URL, "ref": TWO}})
    assert (known.commit, exact.commit) == (ONE, TWO)
    worker = git_worker(pool, "pc1")
    first, second = worker.assignments(2)
    assert (first.commit, second.commit) == (ONE, TWO)
    assert msgspec.json.decode(first.spec)["workspace"]["commit"] is None, "equal job files share a spec"


def test_only_the_holder_of_the_lease_pins_and_only_its_own_repository(pool: InProcessCoordinator) -> None:
    pool.submit({"workspace": WORKSPACE})
    worker, other = git_worker(pool, "pc1"), git_worker(pool, "pc2")
    attempt = worker.take()
    refusals: dict[Code, Callable[[], str]] = {
        Code.MALFORMED: lambda: pin(worker, attempt, ONE, repo="https://example.org/other.git"),
        Code.FORBIDDEN: lambda: pin(other, attempt, ONE),
        Code.NOT_FOUND: lambda: pin(worker, "1.1/7", ONE),
    }
    for code, call in refusals.items():
        with pytest.raises(Refusal) as refused:
            call()
        assert refused.value.code is code
    pool.sleep(PAST_LEASE)
    with pytest.raises(Refusal) as stale:
        pin(worker, attempt, ONE)
    assert stale.value.code is Code.STALE_ATTEMPT
    assert pool.run(1).commit is None


def test_only_workers_that_check_out_repositories_get_such_jobs(pool: InProcessCoordinator) -> None:
    pool.submit({"workspace": WORKSPACE})
    plain = pool.worker("plain")
    assert plain.claim() == []
    assert len(git_worker(pool, "pc1").claim()) == 1
