"""Waiting claims: they wake for jobs, their number is limited, and several coordinators can share one PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deborgen_coordinator.app import open_context
from deborgen_coordinator.operations.context import Context
from deborgen_coordinator.operations.maintenance.lease_check import PATIENCE_SECONDS, LeaseChecker
from deborgen_coordinator.operations.workers import claim as claims
from deborgen_coordinator.operations.workers import finish as finishing
from deborgen_coordinator.operations.workers.claim import NoJobs
from deborgen_coordinator.operations.workers.steer import steer
from deborgen_shared import messages as m
from support.clock import FakeClock
from support.in_process import PAST_LEASE, InProcessCoordinator, InProcessWorker
from support.waiting import wait_until

GIB = 1 << 30


def slots_taken(ctx: Context) -> int:
    """The number of claims that have taken a slot for waiting."""
    return ctx.wakeups._slots.total


def waiting_claims(ctx: Context) -> int:
    """The number of claims that are waiting for a job at this moment."""
    return len(ctx.wakeups._waiters["jobs"])


def claim(ctx: Context, worker: InProcessWorker, request: str, wait: float = 30) -> Any:
    body = m.Claim(session=worker.session, request_id=request, free=worker.capacity, max=64, wait_seconds=wait)
    return claims.claim(ctx, worker.actor, worker.name, body)


def in_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    return thread, found


def test_a_waiting_claim_wakes_for_a_submit(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    thread, found = in_thread(lambda: claim(pool.ctx, worker, "r1"))
    wait_until(lambda: slots_taken(pool.ctx) == 1)
    pool.submit()
    thread.join(20)
    assert [a.attempt for a in found[0].assignments] == ["1.1/1"]
    assert slots_taken(pool.ctx) == 0


def test_the_end_of_a_job_wakes_a_claim_if_its_submitter_was_at_the_limit(
    make_pool: Callable[..., InProcessCoordinator],
) -> None:
    """Seen to fail when only new and requeued jobs wake a claim: it waited out its time."""
    pool = make_pool(max_running_per_submitter=1)
    pool.submit(sweep={"grid": {"n": [1, 2]}})
    holder, other = pool.worker("pc1"), pool.worker("pc2")
    attempt = holder.take()
    thread, found = in_thread(lambda: claim(pool.ctx, other, "r1"))
    wait_until(lambda: slots_taken(pool.ctx) == 1)
    holder.finish(attempt)
    thread.join(20)
    assert [a.attempt for a in found[0].assignments] == ["1.2/1"]


def test_a_waiting_claim_wakes_for_a_release_and_for_the_end_of_a_backoff(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=3, retry={"backoff": "5s"})
    holder, other = pool.worker("pc1"), pool.worker("pc2")
    (attempt,) = holder.start()
    thread, found = in_thread(lambda: claim(pool.ctx, other, "r1"))
    wait_until(lambda: slots_taken(pool.ctx) == 1)
    holder.finish(attempt, "released")
    thread.join(20)
    assert [a.attempt for a in found[0].assignments] == ["1.1/2"]
    other.beat("1.1/2")
    other.finish("1.1/2", "error", reason="no image")
    thread, found = in_thread(lambda: claim(pool.ctx, holder, "r2"))
    wait_until(lambda: slots_taken(pool.ctx) == 1)
    pool.sleep(6)
    thread.join(20)
    assert [a.attempt for a in found[0].assignments] == ["1.1/3"]


def test_one_new_job_costs_one_transaction_however_many_claims_wait(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty idle workers must not cost thirty transactions for every job."""
    looks: list[str] = []
    look = claims.take

    def counted(work: Any, *rest: Any, **options: Any) -> Any:
        looks.append(work.actor.name)
        return look(work, *rest, **options)

    monkeypatch.setattr(claims, "take", counted)
    machines = [pool.worker(f"pc{at}") for at in range(20)]
    waits = []
    for at, worker in enumerate(machines, 1):
        waits.append(in_thread(lambda worker=worker: claim(pool.ctx, worker, "r")))
        wait_until(lambda: waiting_claims(pool.ctx) == at)  # noqa: B023
    looks.clear()
    for at in range(3):
        pool.submit()
        waits[-1 - at][0].join(20)
    assert looks == ["pc19", "pc18", "pc17"]  # the claim that came last is the most likely to be still connected
    assert waiting_claims(pool.ctx) == 17
    pool.ctx.wakeups.close()
    for thread, _ in waits:
        thread.join(20)


def test_a_job_is_not_given_to_a_claim_whose_worker_is_gone(pool: InProcessCoordinator) -> None:
    """The job would stay there until its lease expires. Seen to fail when nobody checks the connection."""
    here, dead = pool.worker("here"), pool.worker("dead")
    one = in_thread(lambda: claim(pool.ctx, here, "r"))
    wait_until(lambda: waiting_claims(pool.ctx) == 1)
    body = m.Claim(session=dead.session, request_id="r", free=dead.capacity, wait_seconds=60)
    two = in_thread(lambda: claims.claim(pool.ctx, dead.actor, dead.name, body, lambda: True))
    wait_until(lambda: waiting_claims(pool.ctx) == 2)
    pool.submit()
    one[0].join(20)
    two[0].join(20)
    assert [a.attempt for a in one[1][0].assignments] == ["1.1/1"]
    assert isinstance(two[1][0], NoJobs)


def test_a_job_is_not_given_to_a_waiting_worker_whose_heartbeats_have_stopped(pool: InProcessCoordinator) -> None:
    """Its connection looks alive, but its machine is gone. Seen to fail when only the connection is checked."""
    here, dead = pool.worker("here"), pool.worker("dead")
    one = in_thread(lambda: claim(pool.ctx, here, "r", wait=600))
    wait_until(lambda: waiting_claims(pool.ctx) == 1)
    two = in_thread(lambda: claim(pool.ctx, dead, "r", wait=600))
    wait_until(lambda: waiting_claims(pool.ctx) == 2)
    pool.sleep(30)
    here.beat()
    pool.submit()
    two[0].join(20)
    one[0].join(20)
    assert [a.attempt for a in one[1][0].assignments] == ["1.1/1"]
    assert isinstance(two[1][0], NoJobs)


def test_a_job_that_the_first_worker_cannot_run_reaches_one_that_can(pool: InProcessCoordinator) -> None:
    machines = [pool.worker("large", labels={"gpu": True})] + [pool.worker(f"pc{at}") for at in range(9)]
    waits = []
    for at, worker in enumerate(machines, 1):
        waits.append(in_thread(lambda worker=worker: claim(pool.ctx, worker, "r", wait=60)))
        wait_until(lambda: waiting_claims(pool.ctx) == at)  # noqa: B023
    pool.submit(requires={"gpu": True})
    waits[0][0].join(20)
    assert [a.attempt for a in waits[0][1][0].assignments] == ["1.1/1"]
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 9 * 64}}})  # one machine holds 64 of them
    for thread, _ in waits:
        thread.join(20)
    assert [len(found[0].assignments) for _, found in waits] == [1] + [64] * 9


def test_a_claim_that_fails_wakes_the_next_one(pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    look = claims.take

    def broken(work: Any, *rest: Any, **options: Any) -> Any:
        if rest[-1] is not None and work.actor.name == "pc1":
            raise ZeroDivisionError("a bug")
        return look(work, *rest, **options)

    monkeypatch.setattr(claims, "take", broken)

    def fails(worker: InProcessWorker) -> str:
        with pytest.raises(ZeroDivisionError) as failure:
            claim(pool.ctx, worker, "r")
        return str(failure.value)

    first, second = pool.worker("pc0"), pool.worker("pc1")
    one = in_thread(lambda: claim(pool.ctx, first, "r"))
    wait_until(lambda: waiting_claims(pool.ctx) == 1)
    two = in_thread(lambda: fails(second))
    wait_until(lambda: waiting_claims(pool.ctx) == 2)
    pool.submit()
    one[0].join(20)
    two[0].join(20)
    assert [a.attempt for a in one[1][0].assignments] == ["1.1/1"]
    assert two[1] == ["a bug"]


def finish(ctx: Context, worker: InProcessWorker, attempt: str, request: str, cpus: float) -> m.Finished:
    """A result with a claim for this many CPUs."""
    claim = m.NextClaim(request_id=request, free=m.Resources(cpus=cpus, memory=GIB), max=8)
    result = m.Result(attempt=attempt, outcome="succeeded", seconds=1.0)
    return finishing.finish(ctx, worker.actor, worker.name, m.Finish(worker.session, [result], claim))


def wait_with_part_of_the_room(pool: InProcessCoordinator) -> tuple[InProcessWorker, str, threading.Thread, list[Any]]:
    """A worker that runs a job on one of its two CPUs, and whose claim waits for a job for the other CPU."""
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    part = m.Resources(cpus=1, memory=GIB)
    body = m.Claim(session=worker.session, request_id="r1", free=part, max=8, wait_seconds=60)
    thread, found = in_thread(lambda: claims.claim(pool.ctx, worker.actor, worker.name, body))
    wait_until(lambda: waiting_claims(pool.ctx) == 1)
    return worker, attempt, thread, found


def test_a_finish_with_the_request_of_a_waiting_claim_is_answered_and_the_claim_too(pool: InProcessCoordinator) -> None:
    """Both get the same attempts, and no others. Seen to fail when the claim is not woken."""
    worker, attempt, thread, found = wait_with_part_of_the_room(pool)
    pool.submit(resources={"cpus": 2, "memory": "16MiB"})
    wait_until(lambda: waiting_claims(pool.ctx) == 1)
    given = finish(pool.ctx, worker, attempt, "r1", 2.0)
    thread.join(20)
    assert [a.attempt for a in given.assignments or []] == ["2.1/1"]
    assert [a.attempt for a in found[0].assignments] == ["2.1/1"]
    assert slots_taken(pool.ctx) == 0


def test_a_waiting_claim_asks_for_the_free_room_that_a_finish_with_its_request_reports(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when it still asks for a part of the room: a large job waits in vain."""
    worker, attempt, thread, found = wait_with_part_of_the_room(pool)
    assert finish(pool.ctx, worker, attempt, "r1", 2.0).assignments == []
    pool.submit(resources={"cpus": 2, "memory": "16MiB"})
    thread.join(20)
    assert [a.attempt for a in found[0].assignments] == ["2.1/1"]


def test_a_finish_with_another_request_does_not_change_a_waiting_claim(pool: InProcessCoordinator) -> None:
    """Older workers have more than one claim, each for a part of the room."""
    worker, attempt, thread, found = wait_with_part_of_the_room(pool)
    assert finish(pool.ctx, worker, attempt, "r2", 2.0).assignments == []
    pool.submit(resources={"cpus": 2, "memory": "16MiB"})
    pool.submit(resources={"cpus": 1, "memory": "16MiB"})
    thread.join(20)
    assert [a.attempt for a in found[0].assignments] == ["3.1/1"]


def test_without_a_waiting_slot_a_claim_is_answered_at_once_with_a_poll_interval_for_all_workers(
    make_pool: Any,
) -> None:
    pool = make_pool(max_waiters=1, poll_rate=2)
    machines = [pool.worker(f"pc{at}") for at in range(21)]
    thread, _ = in_thread(lambda: claim(pool.ctx, machines[0], "r"))
    wait_until(lambda: slots_taken(pool.ctx) == 1)
    answers = [claim(pool.ctx, worker, "r") for worker in machines[1:]]
    assert all(isinstance(answer, NoJobs) for answer in answers)
    # Twenty workers that poll every ten seconds make two requests per second, as the setting says.
    assert all(9 <= answer.retry_after <= 11 for answer in answers)
    pool.ctx.wakeups.close()
    thread.join(20)


def test_the_waiting_claims_of_one_worker_leave_slots_to_the_others(make_pool: Any) -> None:
    """Seen to fail when one person may take everything."""
    pool = make_pool(max_waiters=8)
    greedy, modest = pool.worker("greedy"), pool.worker("modest")
    threads = [in_thread(lambda at=at: claim(pool.ctx, greedy, f"r{at}"))[0] for at in range(2)]
    wait_until(lambda: slots_taken(pool.ctx) == 2)
    answer = claim(pool.ctx, greedy, "one more")
    assert isinstance(answer, NoJobs)
    assert answer.retry_after > 0, "it is answered at once"
    threads.append(in_thread(lambda: claim(pool.ctx, modest, "r"))[0])
    wait_until(lambda: slots_taken(pool.ctx) == 3)
    pool.ctx.wakeups.close()
    for thread in threads:
        thread.join(20)


def test_a_stop_answers_every_long_poll(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    thread, found = in_thread(lambda: claim(pool.ctx, worker, "r1", wait=60))
    wait_until(lambda: slots_taken(pool.ctx) == 1)
    pool.ctx.wakeups.close()
    thread.join(5)
    assert isinstance(found[0], NoJobs)


def test_a_paused_worker_gets_nothing_and_is_told_to_poll_rarely(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    steer(pool.ctx, worker.actor, "pc1", m.SteerWorker(paused=True))
    assert isinstance(answer := claim(pool.ctx, worker, "r1"), NoJobs)
    assert answer.retry_after >= 5
    steer(pool.ctx, worker.actor, "pc1", m.SteerWorker(paused=False))
    assert worker.claim() == ["1.1/1"]
    assert [t for t in pool.types(worker="pc1") if t.startswith("worker.")] == [
        "worker.registered", "worker.online", "worker.paused", "worker.resumed",
    ]  # fmt: skip


@pytest.mark.postgres
def test_a_claim_that_waits_at_one_coordinator_wakes_for_a_submit_at_another(tmp_path: Path, postgres_url: str) -> None:
    one = InProcessCoordinator(tmp_path / "one", postgres_url)
    two = InProcessCoordinator(tmp_path / "two", postgres_url)
    worker = one.worker()
    thread, found = in_thread(lambda: claim(one.ctx, worker, "r1"))
    wait_until(lambda: slots_taken(one.ctx) == 1)
    two.submit()
    thread.join(20)
    assert [a.attempt for a in found[0].assignments] == ["1.1/1"]
    one.stop()
    two.stop()


@pytest.mark.postgres
def test_a_claim_soon_retries_jobs_that_another_coordinator_had_locked(tmp_path: Path, postgres_url: str) -> None:
    """No signal says when the other one is done. Seen to fail when it waits for a signal."""
    pool = InProcessCoordinator(tmp_path, postgres_url)
    pool.submit()
    worker = pool.worker()
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT id FROM job FOR UPDATE")
        thread, found = in_thread(lambda: claim(pool.ctx, worker, "r1", wait=60))
        wait_until(lambda: slots_taken(pool.ctx) == 1)
        other.rollback()
    thread.join(20)
    assert [a.attempt for a in found[0].assignments] == ["1.1/1"]
    pool.stop()


def test_fault_08_64_claimers_on_1000_jobs_never_get_the_same_job(tmp_path: Path, database: str) -> None:
    """At one coordinator on SQLite, at two on PostgreSQL. Seen to fail when claimers at two coordinators look at
    the same rows.
    """
    pools = [InProcessCoordinator(tmp_path / name, database) for name in (("one", "two") if database else ("one",))]
    pools[0].submit(sweep={"grid": {"n": {"from": 1, "to": 1000}}})
    machines = [pools[at % len(pools)].worker(f"pc{at}") for at in range(64)]

    def take(worker: InProcessWorker) -> list[str]:
        given = []
        while found := worker.claim(7):
            given += found
        return given

    with ThreadPoolExecutor(len(machines)) as threads:
        given = [attempt for found in threads.map(take, machines) for attempt in found]
    assert sorted(given) == sorted(f"1.{n}/1" for n in range(1, 1001))
    sequence = [event.seq for event in pools[0].events(limit=10_000)]
    assert sequence == sorted(set(sequence))
    for pool in pools:
        pool.stop()


@pytest.mark.postgres
def test_of_two_coordinators_one_checks_leases_and_the_other_takes_over_when_it_stops(
    tmp_path: Path, postgres_url: str
) -> None:
    one = InProcessCoordinator(tmp_path / "one", postgres_url)
    two_clock = FakeClock()
    two_ctx = open_context(one.settings, two_clock)
    two = LeaseChecker(two_ctx)
    assert one.lease_checker.run_once().leading
    assert not two.run_once().leading
    one.submit()
    worker = one.worker()
    worker.start()
    two_clock.pass_by(PATIENCE_SECONDS / 2)
    one.sleep(3)
    assert not two.run_once().leading
    two_clock.pass_by(PATIENCE_SECONDS + 30)
    assert two.run_once().leading
    assert one.job("1.1").state == "running"
    assert not one.lease_checker.run_once().leading
    for _ in range(int(PAST_LEASE / 3)):
        two_clock.pass_by(3)
        two.run_once()
    assert one.job("1.1").state == "failed"
    two_ctx.store.close()
    one.stop()
