"""The unit of work: changes that belong together are stored together, and settle when it closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deborgen_coordinator import ids
from deborgen_coordinator.leases import Verdict
from deborgen_coordinator.lifecycle import LifecycleEvent
from deborgen_coordinator.operations.lookup import find_run
from deborgen_coordinator.operations.work import AttemptEnding, RefusedTransition, Work
from deborgen_coordinator.storage import attempts, lease_clock
from deborgen_coordinator.storage.transactions import Tx
from deborgen_shared.states import Outcome
from support.in_process import InProcessCoordinator, person

STEPS = {"steps": [{"id": "a", "run": "true"}, {"id": "b", "run": "true", "needs": ["a"]}]}


def test_runs_and_steps_settle_when_the_unit_closes(pool: InProcessCoordinator) -> None:
    """Seen to fail when the unit does nothing when it closes."""
    pool.submit(STEPS)

    def cancel_the_first(work: Work) -> int:
        assert work.cancel_queued(ids.key(1, 1), ids.key(1, 1), "why") == [ids.key(1, 1)]
        return find_run(work.tx, 1).queued

    assert pool.ctx.work(person("alice"), cancel_the_first) == 2
    assert (pool.run(1).jobs.queued, pool.run(1).jobs.canceled) == (0, 2)
    assert pool.job("1.2").reason == "step 'a', which it needs, did not succeed"


def test_a_unit_can_use_an_existing_transaction(pool: InProcessCoordinator) -> None:
    pool.submit(STEPS)

    def cancel_all(tx: Tx) -> None:
        with Work(pool.ctx, tx, person("alice")) as work:
            work.cancel_queued(*ids.span(1), "why")

    pool.ctx.store.write(cancel_all)
    assert pool.run(1).jobs.canceled == 2
    assert {event.actor for event in pool.events() if event.type == "job.canceled"} == {"submitter:alice"}


def test_a_unit_that_fails_changes_nothing(pool: InProcessCoordinator) -> None:
    pool.submit(STEPS)

    def fail(work: Work) -> None:
        work.cancel_queued(*ids.span(1), "why")
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        pool.ctx.work(person("alice"), fail)
    assert pool.run(1).jobs.queued == 2
    assert "job.canceled" not in pool.types()
    assert pool.audit().clean


def test_a_refused_transition_undoes_its_unit_and_is_in_the_history(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2]}})
    worker = pool.worker()
    name = worker.claim()[0]

    def end_it_twice(work: Work) -> None:
        work.cancel_queued(*ids.span(1), "why")
        held = attempts.get(work.tx, *ids.parse_attempt(name))
        assert held is not None
        for _ in range(2):
            work.conclude(held, Verdict(LifecycleEvent.FAILED), AttemptEnding(Outcome.FAILED, "why", 1.0))

    with pytest.raises(RefusedTransition, match="cannot be failed"):
        pool.ctx.work(person("alice"), end_it_twice)
    assert (pool.run(1).jobs.queued, pool.run(1).jobs.running) == (1, 1)
    [refused] = [event for event in pool.events() if event.type == "transition.refused"]
    assert (refused.attempt, refused.worker, refused.actor) == (name, "pc1", "submitter:alice")
    assert (refused.old_state, refused.data) == ("running", {"event": "failed"})
    assert "job.failed" not in pool.types()


def test_the_time_and_the_lease_clock_are_read_once_per_unit(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2, 3]}})
    worker = pool.worker()
    given = worker.start(3)
    reads: list[str] = []

    def counted(what: str, read: Callable[..., float]) -> Callable[..., float]:
        def count_and_read(*args: Any) -> float:
            reads.append(what)
            return read(*args)

        return count_and_read

    monkeypatch.setattr(pool.clock, "wall", counted("wall", pool.clock.wall))
    monkeypatch.setattr(lease_clock, "read", counted("lease clock", lease_clock.read))
    worker.beat(*given, began_seconds_ago=1.0)
    assert sorted(reads) == ["lease clock", "wall"]
