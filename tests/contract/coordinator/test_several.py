"""Several coordinators on one PostgreSQL: what one does between two statements of another breaks nothing."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deborgen_coordinator.operations import blobs as blob_operations
from deborgen_coordinator.operations.maintenance.cleanup import Cleaner
from deborgen_coordinator.operations.maintenance.retention import DAY
from deborgen_coordinator.operations.runs import retry
from deborgen_coordinator.storage import blobs, jobs, rounds, runs, workers
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.messages import Retry
from support.in_process import InProcessCoordinator, InProcessWorker, person

pytestmark = pytest.mark.postgres


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[tuple[InProcessCoordinator, InProcessCoordinator]]:
    one, two = (InProcessCoordinator(tmp_path / name, postgres_url) for name in ("one", "two"))
    yield one, two
    one.stop()
    two.stop()


def once_after(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, then: Callable[[], object]) -> list[object]:
    """Run `then` right after the first call of this function, as another process would; return its result."""
    original = getattr(module, name)
    done: list[object] = []

    def call(*arguments: Any, **named: Any) -> Any:
        answer = original(*arguments, **named)
        if not done:
            done.append(None)
            done[0] = then()
        return answer

    monkeypatch.setattr(module, name, call)
    return done


def test_rule_13_a_cancel_is_not_lost_when_another_coordinator_claims_the_job_meanwhile(
    pair: tuple[InProcessCoordinator, InProcessCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    one.submit()
    worker = two.worker()
    claimed = once_after(monkeypatch, jobs, "request_cancel", worker.start)
    assert one.cancel("1") == {"1.1": "canceled"}
    assert claimed == [[]]
    assert one.job("1.1").state == "canceled"


def test_rule_13_a_cancel_reaches_the_job_that_another_coordinator_adds_to_a_loop_meanwhile(
    pair: tuple[InProcessCoordinator, InProcessCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    one.submit(repeat={"until": "true", "most": 3})
    worker, other = two.worker(), two.worker("pc2")
    attempt = worker.take()
    answers: list[dict[str, str]] = []
    canceler = threading.Thread(target=lambda: answers.append(one.cancel("1")), daemon=True)

    def cancel_elsewhere() -> None:
        canceler.start()
        canceler.join(1)  # it waits for the result, or is done long before

    once_after(monkeypatch, rounds, "add", cancel_elsewhere)
    claimed = once_after(monkeypatch, jobs, "request_cancel", other.claim)
    assert worker.finish(attempt) == "accepted"
    canceler.join(30)
    assert answers == [{"1.1": "already_terminal", "1.2": "canceled"}]
    assert claimed == [[]]
    assert (one.job("1.2").state, one.run(1).state) == ("canceled", "canceled")
    assert one.audit().clean


def test_the_limit_of_a_submitter_holds_when_two_coordinators_count_at_the_same_time(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = [InProcessCoordinator(tmp_path / name, postgres_url, max_running_per_submitter=1) for name in ("a", "b")]
    pools[0].submit({"sweep": {"grid": {"n": [1, 2, 3]}}})
    mine, other = (pool.worker(name) for pool, name in zip(pools, ("pc1", "pc2"), strict=True))
    found: list[str] = []
    elsewhere = threading.Thread(target=lambda: found.extend(other.claim()), daemon=True)

    def claim_elsewhere() -> None:
        elsewhere.start()
        elsewhere.join(1)  # it waits for the first claim, or is done long before

    once_after(monkeypatch, jobs, "running_per_submitter", claim_elsewhere)
    granted = mine.claim()
    elsewhere.join(30)
    assert (len(granted), found) == (1, [])
    for pool in pools:
        pool.stop()


def test_the_same_retry_at_two_coordinators_makes_one_run(
    pair: tuple[InProcessCoordinator, InProcessCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    one.submit()
    one.cancel("1")

    def again(pool: InProcessCoordinator) -> int:
        return retry.retry_run(pool.ctx, person("alice"), 1, Retry(only="canceled"), "key", "digest")[0].id

    made = once_after(monkeypatch, runs, "submission", lambda: again(two))
    with pytest.raises(Refusal) as caught:
        again(one)
    assert caught.value.code is Code.UNAVAILABLE
    assert [again(one), again(two)] == made * 2
    assert one.types().count("run.submitted") == 2


def test_the_same_first_registration_at_two_coordinators_counts_once(
    pair: tuple[InProcessCoordinator, InProcessCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    mine, again = (InProcessWorker(pool, "pc1") for pool in pair)
    again.session = mine.session
    once_after(monkeypatch, workers, "get", again.register)
    assert mine.register() == []
    assert one.types(worker="pc1").count("worker.registered") == 1


def test_rule_12_a_blob_that_a_submit_is_about_to_use_is_not_collected_by_another_coordinator(
    pair: tuple[InProcessCoordinator, InProcessCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    digest = hashlib.sha256(b"input").hexdigest()
    blob_operations.put(one.ctx, digest, [b"input"])
    two.clock.pass_by(2 * DAY)
    collected: list[int] = []
    collector = threading.Thread(target=lambda: collected.append(Cleaner(two.ctx).collect_blobs()), daemon=True)

    def collect() -> None:
        collector.start()
        collector.join(1)  # it waits for the submit, or is done long before

    once_after(monkeypatch, blobs, "known_blobs", collect)
    one.submit(files=[{"path": "a", "sha256": digest, "size": 5}])
    collector.join(20)
    assert collected == [0]
