"""The ledger counts what attempts used: once each, however they end, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from deborgen_coordinator.operations import usage
from deborgen_coordinator.operations.ledger import ledger
from deborgen_coordinator.operations.maintenance.cleanup import Cleaner
from deborgen_coordinator.operations.usage import DAY, STRETCH, short_since, spread
from deborgen_coordinator.storage.dump import tables
from deborgen_coordinator.storage.migrations import step_0015_usage
from deborgen_coordinator.storage.models import QueueDepth, Spent
from deborgen_shared.messages import LedgerHours, LedgerRow
from deborgen_shared.queries import LedgerQuery
from support.in_process import PAST_LEASE, InProcessCoordinator

HOUR = 3600.0
ASKED = {"cpus": 4, "memory": "2GiB", "gpus": 0}


def lines(pool: InProcessCoordinator, by: Any = "person") -> dict[tuple[str | None, str | None], LedgerRow]:
    return {(row.person, row.machine): row for row in ledger(pool.ctx, LedgerQuery(by=by)).items}


def run_for(pool: InProcessCoordinator, worker: Any, seconds: float, **submitted: Any) -> str:
    """Submit a job, and let the worker finish it after these seconds."""
    pool.submit(resources=ASKED, **submitted)
    attempt = str(worker.take())
    pool.clock.pass_by(seconds)
    worker.finish(attempt, seconds=seconds)
    return attempt


def test_an_attempt_counts_with_what_its_job_asked_for(pool: InProcessCoordinator) -> None:
    run_for(pool, pool.worker(), 1800.0, by="ada")
    row = lines(pool)["ada", None]
    assert row.used == LedgerHours(attempts=1, hours=0.5, core_hours=2.0, gpu_hours=0.0, memory_gib_hours=1.0)
    assert row.given == row.own == LedgerHours()


def test_jobs_of_the_owner_on_the_own_machine_cost_nothing(pool: InProcessCoordinator) -> None:
    worker = pool.worker(labels={"owner": "ada"})
    run_for(pool, worker, HOUR, by="ada")
    run_for(pool, worker, HOUR, by="bob")
    found = lines(pool)
    assert (found["ada", None].own.core_hours, found["ada", None].used.core_hours) == (4.0, 0.0)
    assert found["ada", None].given.core_hours == found["bob", None].used.core_hours == 4.0
    [machine] = lines(pool, "machine").values()
    assert (machine.machine, machine.given.core_hours, machine.own.core_hours) == ("pc1", 4.0, 4.0)
    both = lines(pool, "both")
    assert both["ada", "pc1"].own.core_hours == both["bob", "pc1"].used.core_hours == 4.0


def test_a_result_that_is_sent_twice_counts_once(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    attempt = run_for(pool, worker, HOUR)
    worker.finish(attempt, seconds=HOUR)
    assert lines(pool)["alice", None].used.hours == 1.0


def test_an_attempt_that_was_lost_and_comes_back_counts_once(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    pool.submit(resources=ASKED, max_attempts=3)
    attempt = worker.take()
    pool.sleep(PAST_LEASE)
    lost = lines(pool)["alice", None].used
    assert lost.attempts == 1
    assert lost.hours > 0
    assert worker.beat(attempt) == {attempt: "continue"}
    assert lines(pool)["alice", None].used == LedgerHours()
    pool.clock.pass_by(HOUR)
    worker.finish(attempt, seconds=HOUR)
    assert lines(pool)["alice", None].used == LedgerHours(attempts=1, hours=1.0, core_hours=4.0, memory_gib_hours=2.0)


def test_a_worker_cannot_claim_more_time_than_has_passed(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    pool.submit(resources=ASKED)
    attempt = worker.take()
    pool.clock.pass_by(HOUR)
    worker.finish(attempt, seconds=1e9)
    assert lines(pool)["alice", None].used.hours == 1.0


def test_an_attempt_that_was_given_back_counts_its_hours_but_not_as_an_attempt(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    pool.submit(resources=ASKED)
    attempt = worker.take()
    pool.clock.pass_by(HOUR)
    worker.finish(attempt, "released", seconds=HOUR)
    assert lines(pool)["alice", None].used == LedgerHours(hours=1.0, core_hours=4.0, memory_gib_hours=2.0)


def test_the_ledger_begins_with_a_day(pool: InProcessCoordinator) -> None:
    run_for(pool, pool.worker(), HOUR)
    tomorrow = datetime.fromtimestamp(pool.clock.wall() + DAY, UTC).date()
    assert ledger(pool.ctx, LedgerQuery(since=tomorrow)).items == []
    assert ledger(pool.ctx, LedgerQuery(since=datetime.fromtimestamp(0, UTC).date())).items


def test_old_stretches_become_days_and_the_sums_stay(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    for _ in range(5):
        run_for(pool, worker, 1000.0)
    before = lines(pool)["alice", None].used
    count = "SELECT COUNT(*) FROM usage WHERE length = ?"
    assert pool.ctx.store.read(lambda reader: reader.value(count, (STRETCH,))) > 5
    pool.clock.pass_by(3 * DAY)
    cleaner = Cleaner(pool.ctx)
    cleaner.run_once()
    assert pool.ctx.store.read(lambda reader: reader.value(count, (STRETCH,))) == 0
    assert 1 <= pool.ctx.store.read(lambda reader: reader.value(count, (DAY,))) <= 2
    after = lines(pool)["alice", None].used
    assert after.attempts == before.attempts
    assert after.core_hours == pytest.approx(before.core_hours)


def test_the_depth_of_the_queue_is_kept_once_per_minute_for_a_day(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2, 3]}})
    pool.worker().start(1)
    minute = usage.note_depth(pool.ctx, None)
    assert usage.note_depth(pool.ctx, minute) == minute

    def rows() -> Any:
        columns = (QueueDepth.minute, QueueDepth.queued, QueueDepth.running)
        return pool.ctx.store.read(lambda reader: reader.rows(QueueDepth.select(*columns)))

    assert rows() == [(minute, 2, 1)]
    pool.clock.pass_by(2 * DAY)
    now = usage.note_depth(pool.ctx, minute)
    assert [row[0] for row in rows()] == [now]


def test_time_is_spread_over_stretches_without_a_gap() -> None:
    end = 20 * DAY + 7 * HOUR + 12.5
    for seconds in (0.0, 0.25, 299.0, 301.0, HOUR, 1.5 * DAY, 9.3 * DAY):
        found = list(spread(end - seconds, end))
        assert sum(part for _, _, part in found) == pytest.approx(seconds)
        assert all(0 <= part <= length for _, length, part in found)
        assert all(length == (STRETCH if begin >= short_since(end) else DAY) for begin, length, _ in found)
        assert found[-1][0] <= end < found[-1][0] + found[-1][1]


def test_a_backup_keeps_the_ledger() -> None:
    assert {Spent._meta.table_name, QueueDepth._meta.table_name} <= set(tables())


def test_a_migration_counts_the_attempts_of_the_past(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    for by in ("ada", "bob", "ada"):
        run_for(pool, worker, 1000.0, by=by)
    before = lines(pool)

    def count_again(tx: Any) -> None:
        tx.run("DELETE FROM usage")
        step_0015_usage._count_the_past(tx.connection)

    pool.ctx.store.write(count_again)
    assert lines(pool) == before
