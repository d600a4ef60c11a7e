"""Several coordinators on one PostgreSQL: what one does between two statements of another harms nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deborgen_coordinator.operations import retry
from deborgen_coordinator.storage import jobs, runs
from deborgen_shared.errors import Code, Refusal
from support.pool import Pool, person

pytestmark = pytest.mark.postgres


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[tuple[Pool, Pool]]:
    one, two = (Pool(tmp_path / name, postgres_url) for name in ("one", "two"))
    yield one, two
    one.close()
    two.close()


def once_after(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, then: Callable[[], object]) -> list[object]:
    """Have `then` done by somebody else right after the first call of that function; what it returned."""
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
    pair: tuple[Pool, Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    one.submit()
    worker = two.worker()
    claimed = once_after(monkeypatch, jobs, "request_cancel", worker.start)
    assert one.cancel("1") == {"1.1": "canceled"}
    assert claimed == [[]]
    assert one.job("1.1").state == "canceled"


def test_the_same_retry_at_two_coordinators_makes_one_run(
    pair: tuple[Pool, Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    one.submit()
    one.cancel("1")

    def again(pool: Pool) -> int:
        return retry.retry_run(pool.ctx, person("alice"), 1, "canceled", "key", "digest")[0].id

    made = once_after(monkeypatch, runs, "submission", lambda: again(two))
    with pytest.raises(Refusal) as caught:
        again(one)
    assert caught.value.code is Code.UNAVAILABLE
    assert [again(one), again(two)] == made * 2
    assert one.types().count("run.submitted") == 2
