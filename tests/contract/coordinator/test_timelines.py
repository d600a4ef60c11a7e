"""The timelines show what ran, when machines were away, how deep the queue was and what ended, on both databases."""

from __future__ import annotations

import pytest

from deborgen_coordinator.operations import timelines, usage
from deborgen_coordinator.operations.lookup import UnknownName
from support.in_process import PAST_LEASE, InProcessCoordinator

HOUR = 3600.0


def test_a_timeline_has_the_attempts_of_the_last_two_hours(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    for outcome in ("succeeded", "failed"):
        pool.submit(by="ada")
        attempt = worker.take()
        pool.clock.pass_by(HOUR / 2)
        worker.finish(attempt, outcome, seconds=1500, began_seconds_ago=1500, reason="exit code 1")
    pool.submit()
    running = worker.take()
    [lane] = timelines.pool_timeline(pool.ctx).machines
    assert [ran.attempt for ran in sorted(lane.attempts, key=lambda ran: ran.claimed_at)] == ["1.1/1", "2.1/1", running]
    by_name = {ran.attempt: ran for ran in lane.attempts}
    assert [by_name[name].failed for name in ("1.1/1", "2.1/1", running)] == [False, True, False]
    assert by_name["2.1/1"].words == "ada, 1800 s, failed: exit code 1"
    assert by_name["1.1/1"].began_at == pytest.approx(by_name["1.1/1"].claimed_at + 300)
    assert by_name[running].finished_at is None
    pool.clock.pass_by(1.6 * HOUR)
    [lane] = timelines.pool_timeline(pool.ctx).machines
    assert sorted(ran.attempt for ran in lane.attempts) == ["2.1/1", running]


def test_with_many_attempts_a_timeline_has_busy_shares(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert timelines.MOST_ATTEMPTS == 500
    monkeypatch.setattr(timelines, "MOST_ATTEMPTS", 29)
    worker = pool.worker(cpus=4)
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 30}}})
    for _ in range(3):
        attempts = worker.claim(10, ahead=True)
        pool.clock.pass_by(300)
        for attempt in attempts:
            worker.finish(attempt, seconds=60)
    found = timelines.pool_timeline(pool.ctx)
    [lane] = found.machines
    assert not found.in_full
    assert lane.attempts == []
    assert sum(lane.busy.values()) == pytest.approx(3 * 0.5)
    assert max(lane.busy.values()) <= 1


def test_a_long_running_attempt_counts_as_busy_before_it_has_ended(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "MOST_ATTEMPTS", 0)
    worker = pool.worker(cpus=2)
    pool.submit(resources={"cpus": 1})
    worker.take()
    pool.clock.pass_by(HOUR)
    [lane] = timelines.pool_timeline(pool.ctx).machines
    whole = sorted(lane.busy.items())[1:-1]
    assert len(whole) >= 10
    assert all(share == pytest.approx(0.5) for _, share in whole)


def test_the_times_in_which_a_machine_was_paused_or_away(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    worker.heartbeat()
    pool.clock.pass_by(600)
    paused = pool.clock.wall()
    worker.heartbeat(state="paused", reason="lunch")
    pool.clock.pass_by(300)
    worker.heartbeat()
    pool.sleep(PAST_LEASE)
    [lane] = timelines.machine_timeline(pool.ctx, "pc1", 2 * HOUR).machines
    now = pool.clock.wall()
    assert lane.away[0] == (paused, paused + 300)
    [(gone, until)] = lane.away[1:]
    assert paused + 300 < gone < until == now


def test_a_machine_that_does_not_exist_has_no_timeline(pool: InProcessCoordinator) -> None:
    with pytest.raises(UnknownName, match="there is no worker nobody"):
        timelines.machine_timeline(pool.ctx, "nobody", HOUR)


def test_the_load_has_the_depth_of_the_queue_and_what_ended(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    pool.submit(sweep={"grid": {"n": [1, 2, 3, 4]}})
    usage.note_depth(pool.ctx, None)
    first, second = worker.start(2)
    pool.clock.pass_by(400)
    worker.finish(first)
    worker.finish(second, "failed")
    found = timelines.load(pool.ctx)
    assert [(depth.queued, depth.running) for depth in found.depths] == [(4, 0), (2, 0)]
    assert sum(each.succeeded for each in found.ended) == sum(each.other for each in found.ended) == 1
    assert len(found.ended) == 25
