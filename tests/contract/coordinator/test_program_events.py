"""A program's own events: each once, in order, from the holder of the lease, in the transaction that counts them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deborgen_coordinator.operations.attempts import program_events
from deborgen_coordinator.operations.maintenance import backup, restore
from deborgen_coordinator.operations.work import Work
from deborgen_shared import messages as m
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.program_events import EVENT_BYTES, JOB_EVENT
from support.in_process import PAST_LEASE, InProcessCoordinator


def event(type_: str, **payload: Any) -> m.ProgramEvent:
    return m.ProgramEvent(type=type_, payload=payload)


def recorded(pool: InProcessCoordinator, job: str = "1.1") -> list[m.Event]:
    return [each for each in pool.events(job=job) if each.type == JOB_EVENT]


def numbers_and_types(pool: InProcessCoordinator, job: str = "1.1") -> list[tuple[int, str]]:
    """The number and the type of each program event of the job in the history."""
    return [(each.data["number"], each.data["type"]) for each in recorded(pool, job)]


def expect_refusal(code: Code, call: Callable[..., Any], *args: Any, **more: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call(*args, **more)
    assert caught.value.code is code, caught.value.message
    return caught.value


def test_a_program_event_is_in_the_history_with_its_job_attempt_and_worker(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    assert worker.send_events(attempt, event("epoch", loss=0.25, nested={"a": [1, None, "é"]}), first=0).count == 1
    (found,) = recorded(pool)
    assert found.data == {"type": "epoch", "payload": {"loss": 0.25, "nested": {"a": [1, None, "é"]}}, "number": 0}
    assert (found.run, found.job, found.attempt, found.worker, found.actor) == (1, "1.1", "1.1/1", "pc1", "worker:pc1")
    assert (found.old_state, found.new_state) == (None, None)
    assert pool.audit().clean


def test_known_events_are_skipped_and_a_gap_is_refused_with_the_count(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    worker.send_events(attempt, event("a"), event("b"), first=0)
    assert worker.send_events(attempt, event("a"), event("b"), event("c"), first=0).count == 3
    assert worker.send_events(attempt, event("b"), first=1).count == 3
    assert worker.send_events(attempt, first=0).count == 3
    gap = expect_refusal(Code.EVENT_GAP, worker.send_events, attempt, event("e"), first=4)
    assert gap.details == {"count": 3}
    assert numbers_and_types(pool) == [(0, "a"), (1, "b"), (2, "c")]


def test_events_without_a_number_are_appended(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    worker.send_events(attempt, event("a"))
    assert worker.send_events(attempt, event("a"), event("b")).count == 3
    assert numbers_and_types(pool) == [(0, "a"), (1, "a"), (2, "b")]


def test_null_consumes_a_number_and_records_nothing(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    assert worker.send_events(attempt, event("a"), None, event("c"), first=0).count == 3
    assert numbers_and_types(pool) == [(0, "a"), (2, "c")]
    assert pool.audit().clean


def test_events_above_the_limit_are_counted_and_dropped(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_events, "MOST_EVENTS", 3)
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    assert worker.send_events(attempt, event("a"), event("b"), first=0) == m.EventCount(count=2, dropped=0)
    assert worker.send_events(attempt, event("c"), event("d"), first=2) == m.EventCount(count=4, dropped=1)
    assert worker.send_events(attempt, event("e"), first=4) == m.EventCount(count=5, dropped=2)
    assert numbers_and_types(pool) == [(0, "a"), (1, "b"), (2, "c")]
    assert worker.finish(attempt) == "accepted"


def test_an_event_that_is_too_large_is_refused_by_its_position_and_nothing_is_recorded(
    pool: InProcessCoordinator,
) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    fits = event("large", text="x" * (EVENT_BYTES - 40))
    large = event("large", text="x" * EVENT_BYTES)
    problem = expect_refusal(Code.TOO_LARGE, worker.send_events, attempt, fits, large, first=0)
    assert "events[1]" in problem.message
    assert numbers_and_types(pool) == []
    assert worker.send_events(attempt, fits, first=0).count == 1


def test_rule_03_events_of_an_ended_attempt_are_stale_and_the_history_says_so_once(
    pool: InProcessCoordinator,
) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    worker.send_events(attempt, event("a"), first=0)
    worker.finish(attempt)
    for first in (0, 1, 7, None):
        expect_refusal(Code.STALE_ATTEMPT, worker.send_events, attempt, event("late"), first=first)
    assert numbers_and_types(pool) == [(0, "a")]
    (stale,) = [each for each in pool.events(job="1.1") if each.type == "result.stale"]
    assert stale.data == {"what": "events"}


def test_rule_03_events_are_accepted_only_from_the_session_that_holds_the_lease(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=3, retry={"backoff": "1s"})
    old, new = pool.worker("old"), pool.worker("new")
    first = old.take()
    pool.sleep(PAST_LEASE)
    second = new.take()
    expect_refusal(Code.STALE_ATTEMPT, old.send_events, first, event("late"), first=0)
    expect_refusal(Code.FORBIDDEN, old.send_events, second, event("not mine"), first=0)
    expect_refusal(Code.NOT_FOUND, new.send_events, "1.1/3", event("never made"), first=0)
    session = new.session
    new.restart(holding=[second])
    new.session, newest = session, new.session
    expect_refusal(Code.SUPERSEDED, new.send_events, second, event("an older session"), first=0)
    new.session = newest
    assert new.send_events(second, event("mine"), first=0).count == 1
    assert [(each.attempt, each.data["type"]) for each in recorded(pool)] == [("1.1/2", "mine")]


def test_rule_08_a_resumed_attempt_continues_with_its_events(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=3, retry={"backoff": "10m"})
    worker = pool.worker()
    attempt = worker.take()
    worker.send_events(attempt, event("a"), first=0)
    pool.sleep(PAST_LEASE)
    expect_refusal(Code.STALE_ATTEMPT, worker.send_events, attempt, event("b"), first=1)
    assert worker.beat(attempt) == {attempt: "continue"}
    assert worker.send_events(attempt, event("a"), event("b"), first=0).count == 2
    assert numbers_and_types(pool) == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("seed", range(5))
def test_events_that_are_lost_repeated_and_reordered_are_recorded_once_and_in_order(
    pool: InProcessCoordinator, seed: int
) -> None:
    """Seen to fail when events that are here already are recorded once more."""
    chance = random.Random(seed)
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    written = [event(f"e{number}") for number in range(60)]
    count = 0
    while count < len(written):
        first = max(0, count + chance.randint(-8, 3))
        try:
            answer = worker.send_events(attempt, *written[first : first + chance.randint(0, 6)], first=first).count
        except Refusal as gap:
            answer = gap.details["count"]
        if chance.random() < 0.7:  # else the answer is lost
            count = answer
    assert numbers_and_types(pool) == [(number, f"e{number}") for number in range(60)]


def test_events_and_their_count_are_stored_together_or_not_at_all(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when the events are recorded in a separate transaction."""
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    calls: list[Any] = []
    record = Work.record

    def fails_at_the_second(*values: Any, **more: Any) -> None:
        calls.append(values)
        if len(calls) == 2:
            raise OSError("no")
        record(*values, **more)

    monkeypatch.setattr(Work, "record", fails_at_the_second)
    with pytest.raises(OSError, match="no"):
        worker.send_events(attempt, event("a"), event("b"), first=0)
    assert numbers_and_types(pool) == []
    assert worker.send_events(attempt, event("a"), event("b"), first=0).count == 2
    assert numbers_and_types(pool) == [(0, "a"), (1, "b")]


def test_a_restored_backup_continues_with_the_next_number(pool: InProcessCoordinator, tmp_path: Path) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    worker.send_events(attempt, event("a"), event("b"), first=0)
    backup.backup(pool.ctx, tmp_path / "b.tar.gz")
    other = InProcessCoordinator(tmp_path / "other")
    try:
        restore.restore(other.ctx, restore.check(tmp_path / "b.tar.gz"))
        worker.coordinator = other
        assert worker.send_events(attempt, event("b"), event("c"), first=1).count == 3
        assert numbers_and_types(other) == [(0, "a"), (1, "b"), (2, "c")]
        assert other.audit().clean
    finally:
        other.stop()
