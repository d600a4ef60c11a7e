"""Faults that the coordinator alone has to survive: repeated, late, crossing and impossible messages, and odd clocks.

The last test breaks, in the product, what each of these tests guards, and checks that the test fails.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deborgen_coordinator.operations.attempts import logs
from deborgen_coordinator.operations.jobs.look import get_job
from deborgen_coordinator.operations.runs.cancel import cancel_run
from deborgen_coordinator.operations.workers import claim as claims
from deborgen_coordinator.operations.workers import finish as finishing
from deborgen_coordinator.operations.workers import register as registering
from deborgen_coordinator.operations.workers.heartbeat import heartbeat
from deborgen_coordinator.operations.workers.look import list_workers
from deborgen_coordinator.operations.workers.sessions import AttemptId
from deborgen_coordinator.storage.database import DatabaseConnection, DatabaseUnavailable
from deborgen_shared.errors import Refusal
from deborgen_shared.messages import Claim, Finish, Heartbeat, Held, JobDetail, Register, Result
from support.in_process import InProcessCoordinator, InProcessWorker, person
from support.simulation_bugs import planted

WITH_RETRIES = {"run": "true", "max_attempts": 5, "retry": {"backoff": "1s"}}


def job(coordinator: InProcessCoordinator, run: int, index: int = 1) -> JobDetail:
    return get_job(coordinator.ctx, run, index)


def let_time_pass(coordinator: InProcessCoordinator, seconds: float) -> None:
    """Let time pass, and run the lease check."""
    coordinator.lease_checker.run_once()
    for _ in range(int(seconds / 3) + 1):
        coordinator.clock.pass_by(3.0)
        coordinator.lease_checker.run_once()


def outcomes(coordinator: InProcessCoordinator, run: int) -> list[str | None]:
    return [attempt.outcome for attempt in job(coordinator, run).history]


def test_fault_07_a_claim_whose_answer_and_spool_are_lost_uses_up_no_attempt(both: InProcessCoordinator) -> None:
    """Seen to fail when an attempt that was never named counts as lost."""
    worker = both.worker("w1")
    run = both.submit({"run": "true"}).id
    worker.claim()
    assert worker.restart() == ["1.1/1"]
    assert (job(both, run).state, job(both, run).attempts, outcomes(both, run)) == ("queued", 0, ["released"])
    worker.claim()
    let_time_pass(both, 80)
    assert (job(both, run).state, job(both, run).attempts) == ("queued", 0)
    assert outcomes(both, run) == ["released", "released"]
    assert both.audit().clean


def test_fault_21_a_result_that_is_sent_twice_is_accepted_once_and_recorded_once(both: InProcessCoordinator) -> None:
    """Seen to fail when a result that is already known is treated like a new one."""
    worker = both.worker("w1")
    run = both.submit({"run": "true"}).id
    attempt = worker.take()
    assert worker.finish(attempt, result={"x": 1}) == "accepted"
    assert [worker.finish(attempt, result={"x": 1}) for _ in range(5)] == ["already_recorded"] * 5
    assert job(both, run).result == {"x": 1}
    assert both.audit().clean


def test_fault_22_another_result_after_the_first_is_refused_and_the_first_is_kept(both: InProcessCoordinator) -> None:
    """Seen to fail when a result is accepted from any session."""
    worker = both.worker("w1")
    run = both.submit(WITH_RETRIES).id
    attempt = worker.take()
    assert worker.finish(attempt, "failed", exit_code=3) == "accepted"
    assert worker.finish(attempt) == "stale"
    assert worker.finish(attempt, "failed", exit_code=4) == "stale"
    assert (job(both, run).state, job(both, run).exit_code, outcomes(both, run)) == ("failed", 3, ["failed"])
    assert both.audit().clean


def test_fault_23_a_stale_result_leaves_the_second_attempt_unharmed(both: InProcessCoordinator) -> None:
    """Seen to fail when a result is accepted from any session."""
    first, second = both.worker("w1"), both.worker("w2")
    run = both.submit(WITH_RETRIES).id
    old = first.take()
    first.write_log(old, b"old", 0)
    let_time_pass(both, 80)
    new = second.take()
    assert new == "1.1/2"
    assert first.finish(old, "failed", exit_code=1) == "stale"
    assert first.beat(old) == {old: "stop"}
    with pytest.raises(Refusal, match="has ended"):
        first.write_log(old, b"late", 3)
    assert second.beat(new) == {new: "continue"}
    assert second.finish(new) == "accepted"
    assert (job(both, run).state, outcomes(both, run)) == ("succeeded", ["lost", "succeeded"])
    assert logs.read(both.ctx, run, 1, 1, 0, 100) == b"old"
    assert both.audit().clean


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("threads", [1, 3])
def test_fault_24_a_result_that_races_the_lease_check_and_a_cancel_has_exactly_one_winner(
    both: InProcessCoordinator, order: tuple[int, ...], threads: int
) -> None:
    """In every order one after the other, and all at once. Seen to fail when a result is accepted from any session."""
    worker = both.worker("w1")
    run = both.submit(WITH_RETRIES).id
    attempt = worker.take()
    both.lease_checker.run_once()
    while both.ctx.store.read(_seconds_left) >= 3.0:
        both.clock.pass_by(3.0)
        both.lease_checker.run_once()
    both.clock.pass_by(3.0)  # the next lease check ends the lease
    racers: list[Callable[[], Any]] = [
        lambda: worker.finish(attempt),
        both.lease_checker.run_once,
        lambda: cancel_run(both.ctx, person("alice"), run, ""),
    ]
    with ThreadPoolExecutor(threads) as pool:
        for racer in [pool.submit(racers[each]) for each in order]:
            racer.result()  # one that comes too late gets a proper refusal
    let_time_pass(both, 6)
    if job(both, run).state == "running":
        worker.beat(attempt)
        worker.finish(attempt, "canceled")
    assert job(both, run).state in {"succeeded", "canceled"}
    assert both.audit().clean, list(both.audit().lines())


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_fault_28_a_step_of_the_wall_clock_expires_nothing(both: InProcessCoordinator, step: float) -> None:
    """Seen to fail when leases are counted on the wall clock."""
    worker = both.worker("w1")
    run = both.submit({"run": "true", "timeout": "10m"}).id
    attempt = worker.take()
    let_time_pass(both, 15)
    both.clock.step_wall(step)
    let_time_pass(both, 9)
    both.clock.step_wall(-2 * step)
    let_time_pass(both, 9)
    assert worker.beat(attempt) == {attempt: "continue"}
    assert worker.finish(attempt) == "accepted"
    assert (job(both, run).state, outcomes(both, run)) == ("succeeded", ["succeeded"])
    assert both.audit().clean


def test_fault_71_replayed_and_reordered_old_requests_have_no_effect(both: InProcessCoordinator) -> None:
    """All requests of two workers are replayed, many times and in any order. Seen to fail when a
    repeated claim gets other jobs.
    """
    tape: list[Callable[[], Any]] = []
    both.submit({"run": "true", "max_attempts": 3, "sweep": {"grid": {"x": [1, 2, 3, 4, 5, 6]}}})
    for name in ("w1", "w2"):
        worker = both.worker(name)
        tape += _conversation(both, worker)
    # One attempt is still alive: an old request may renew its lease again.
    busy = both.worker("w3")
    alive = Claim(session=busy.session, request_id="alive", free=busy.capacity)
    claims.claim(both.ctx, busy.actor, busy.name, alive)
    tape.append(_bound(claims.claim, both.ctx, busy.actor, busy.name, alive))
    before, held = both.ctx.store.read(_all_rows), both.ctx.store.read(_attempts)
    chance = random.Random(7)
    for _ in range(5):
        chance.shuffle(tape)
        for call in tape:
            with contextlib.suppress(Refusal):
                call()
    assert both.ctx.store.read(_all_rows) == before
    assert both.ctx.store.read(_attempts) == held
    assert both.audit().clean


def _seconds_left(reader: DatabaseConnection) -> float:
    """How long the only lease lasts, on the clock of the lease check."""
    [(left,)] = reader.rows("SELECT attempt.lease_clock - lease_clock.value FROM attempt, lease_clock")
    return float(left)


def _attempts(reader: DatabaseConnection) -> list[Any]:
    return reader.rows("SELECT job_id, number, worker_id, outcome, lease_clock IS NULL FROM attempt ORDER BY 1, 2")


def _all_rows(reader: DatabaseConnection) -> list[Any]:
    tables = ("job", "artifact", "log_chunk", "run", "step")
    return [reader.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


def _conversation(coordinator: InProcessCoordinator, worker: InProcessWorker) -> list[Callable[[], Any]]:
    """Claim two jobs, then name, log and finish them. Returns every call that was made."""
    ctx, actor, name, session = coordinator.ctx, worker.actor, worker.name, worker.session
    claim = Claim(session=session, request_id=f"{name}-only", free=worker.capacity, max=2)
    given = [each.attempt for each in claims.claim(ctx, actor, name, claim).assignments]  # type: ignore[union-attr]
    beat = Heartbeat(session=session, holding=[Held(attempt=attempt) for attempt in given])
    heartbeat(ctx, actor, name, beat)
    tape: list[Callable[[], Any]] = []
    for attempt in given:
        run, index = map(int, attempt.partition("/")[0].split("."))
        where = AttemptId(run, index, int(attempt.partition("/")[2]))
        for offset, data in ((0, b"one "), (4, b"two ")):
            call = _bound(logs.append, ctx, actor, where, offset, data, session)
            call()
            tape.append(call)
    results = [Result(attempt=attempt, outcome="succeeded", exit_code=0, log_size=8) for attempt in given]
    finish = Finish(session=session, results=results)
    finishing.finish(ctx, actor, name, finish)
    register = Register(session=session, capacity=worker.capacity, holding=given)
    tape += [
        _bound(claims.claim, ctx, actor, name, claim),
        _bound(heartbeat, ctx, actor, name, beat),
        _bound(finishing.finish, ctx, actor, name, finish),
        _bound(registering.register, ctx, actor, name, register),
    ]
    return tape


def _bound(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)


def test_fault_75_a_job_that_kills_every_worker_is_poison_and_the_workers_recover(both: InProcessCoordinator) -> None:
    """Seen to fail when no job is ever poison."""
    fleet = [both.worker(f"w{n}") for n in range(1, 5)]
    poison = both.submit({"run": "true", "max_attempts": 50, "retry": {"backoff": "1s"}}).id
    for worker in fleet[:3]:
        let_time_pass(both, 80)
        attempt = worker.take()
        assert worker.restart() == [attempt]
    assert job(both, poison).state == "failed"
    assert job(both, poison).reason.startswith("poisoned")
    harmless = both.submit({"run": "true"}).id
    assert fleet[0].finish(fleet[0].take()) == "accepted"
    assert job(both, harmless).state == "succeeded"
    for worker in fleet:
        worker.beat()
    assert all(worker.state == "open" for worker in list_workers(both.ctx).items)
    assert both.audit().clean


NO_FENCE = "no fence: a result is accepted from any session"
NO_IDEMPOTENCE = "no idempotent claim: a repeated request gets other jobs"
GUARDS = [
    (
        "an attempt that was never named counts as lost",
        test_fault_07_a_claim_whose_answer_and_spool_are_lost_uses_up_no_attempt,
    ),
    (NO_FENCE, test_fault_22_another_result_after_the_first_is_refused_and_the_first_is_kept),
    (NO_FENCE, test_fault_23_a_stale_result_leaves_the_second_attempt_unharmed),
    (
        "a repeated result counts as a new one",
        test_fault_21_a_result_that_is_sent_twice_is_accepted_once_and_recorded_once,
    ),
    (
        "the lease clock is the wall clock",
        lambda both: test_fault_28_a_step_of_the_wall_clock_expires_nothing(both, 9e4),
    ),
    (
        NO_IDEMPOTENCE,
        test_fault_71_replayed_and_reordered_old_requests_have_no_effect,
    ),
    ("no job is ever poison", test_fault_75_a_job_that_kills_every_worker_is_poison_and_the_workers_recover),
]


@pytest.mark.parametrize(("bug", "test"), GUARDS)
def test_a_test_of_a_fault_fails_when_the_promise_it_guards_is_broken(bug: str, test: Any, tmp_path: Path) -> None:
    with planted(bug):
        coordinator = InProcessCoordinator(tmp_path)
        try:
            with pytest.raises((AssertionError, Refusal, DatabaseUnavailable)):
                test(coordinator)
        finally:
            coordinator.stop()
