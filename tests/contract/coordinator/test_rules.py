"""The rules that never bend, each by its number, on both databases."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import msgspec
import pytest

from deborgen_coordinator.leases import MOST_LATE_CHECKS
from deborgen_coordinator.lifecycle import TRANSITIONS, LifecycleEvent
from deborgen_coordinator.operations import blobs
from deborgen_coordinator.operations.jobs.look import get_job
from deborgen_coordinator.operations.runs.look import list_runs
from deborgen_coordinator.operations.runs.retry import retry_run
from deborgen_coordinator.operations.workers.finish import finish
from deborgen_coordinator.operations.workers.leave import leave
from deborgen_coordinator.operations.workers.look import get_worker
from deborgen_coordinator.storage import attempts as attempt_rows
from deborgen_coordinator.storage import jobs as job_rows
from deborgen_shared import messages as m
from deborgen_shared.errors import Code, Refusal
from deborgen_shared.queries import RunsQuery
from deborgen_shared.states import State
from support.in_process import HEARTBEAT, LEASE, LEASE_CHECK_SECONDS, PAST_LEASE, InProcessCoordinator, person


def expect_refusal(code: Code, call: Any, *args: Any, **kwargs: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call(*args, **kwargs)
    assert caught.value.code is code
    return caught.value


def test_rule_01_workers_that_race_never_get_the_same_attempt(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 60}}})
    machines = [pool.worker(f"pc{i}") for i in range(6)]
    given: list[list[str]] = [[] for _ in machines]

    def take(at: int) -> None:
        while found := machines[at].claim(3):
            given[at] += found

    threads = [threading.Thread(target=take, args=(at,), daemon=True) for at in range(len(machines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [attempt for part in given for attempt in part]
    assert sorted(everything) == sorted(f"1.{n}/1" for n in range(1, 61))


def test_rule_02_the_same_claim_gets_the_same_attempts_back_and_never_more(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 5}}})
    worker = pool.worker()
    first = worker.claim(2, request="r1")
    assert worker.claim(5, request="r1") == first
    assert worker.claim(5, request="r2") == ["1.3/1", "1.4/1", "1.5/1"]


def test_rule_02_an_answered_claim_gets_nothing_new(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 5}}})
    worker = pool.worker()
    (attempt,) = worker.claim(1, request="r1")
    worker.beat(attempt)
    worker.finish(attempt)
    assert worker.claim(5, request="r1") == []


def test_rule_02_an_attempt_that_was_never_named_is_released_when_its_lease_ends(
    pool: InProcessCoordinator,
) -> None:
    pool.submit()
    pool.worker().claim()
    pool.sleep(PAST_LEASE)
    job = pool.job("1.1")
    assert (job.state, job.attempts, job.history[0].outcome) == ("queued", 0, "released")
    assert pool.worker("pc2").claim() == ["1.1/2"]


def test_rule_03_a_message_for_an_older_attempt_is_stale_and_changes_nothing(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=3, retry={"backoff": "1s"})
    old, new = pool.worker("old"), pool.worker("new")
    (first,) = old.start()
    pool.sleep(PAST_LEASE)
    (second,) = new.start()
    before = pool.job("1.1")
    assert (first, second) == ("1.1/1", "1.1/2")
    assert old.beat(first) == {first: "stop"}
    assert old.finish(first) == "stale"
    expect_refusal(Code.STALE_ATTEMPT, old.write_log, first, b"late")
    assert pool.job("1.1") == before
    assert pool.types(job="1.1").count("result.stale") >= 1
    assert new.finish(second) == "accepted"


def test_rule_03_another_workers_attempt_is_forbidden(pool: InProcessCoordinator) -> None:
    pool.submit()
    (attempt,) = pool.worker("pc1").start()
    thief = pool.worker("pc2")
    expect_refusal(Code.FORBIDDEN, thief.finish, attempt)
    expect_refusal(Code.FORBIDDEN, thief.write_log, attempt, b"x")
    assert thief.beat(attempt) == {attempt: "stop"}
    assert pool.job("1.1").state == "running"


def test_rule_03_an_older_session_is_superseded(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    old = worker.session
    worker.restart(holding=[attempt])
    new = worker.session
    worker.session = old
    for call in (worker.claim, lambda: worker.beat(attempt), lambda: worker.finish(attempt), worker.register):
        expect_refusal(Code.SUPERSEDED, call)
    worker.session = new
    assert worker.finish(attempt) == "accepted"


def test_rule_04_the_first_terminal_result_wins_and_its_repeat_is_recorded_once(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    assert worker.finish(attempt, result={"x": 1}) == "accepted"
    assert worker.finish(attempt, result={"x": 1}) == "already_recorded"
    assert worker.finish(attempt, "failed", exit_code=9) == "stale"
    job = pool.job("1.1")
    assert (job.state, job.result, job.exit_code) == ("succeeded", {"x": 1}, 0)
    assert pool.types(job="1.1").count("job.succeeded") == 1
    assert pool.types(job="1.1").count("result.stale") == 1


def test_rule_04_a_repeated_result_is_the_same_whatever_part_of_the_log_it_carries(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    assert worker.finish(attempt, log_size=3, log=m.LogTail(offset=0, data=b"abc")) == "accepted"
    assert worker.finish(attempt, log_size=3) == "already_recorded"
    assert worker.finish(attempt, log_size=3, log=m.LogTail(offset=2, data=b"c")) == "already_recorded"
    assert pool.log("1.1") == b"abc"


@pytest.mark.parametrize("step", [86_400.0, -86_400.0])
def test_rule_05_a_change_of_the_wall_clock_decides_nothing(pool: InProcessCoordinator, step: float) -> None:
    pool.submit(timeout="1h")
    worker = pool.worker()
    (attempt,) = worker.start()
    pool.clock.step_wall(step)
    pool.sleep(20)
    assert pool.job("1.1").state == "running"
    assert worker.beat(attempt) == {attempt: "continue"}


@pytest.mark.parametrize("outcome", ["failed", "timeout", "out_of_memory"])
def test_rule_06_a_failure_of_the_program_is_final(pool: InProcessCoordinator, outcome: str) -> None:
    pool.submit(max_attempts=5)
    worker = pool.worker()
    worker.finish(worker.take(), outcome)
    assert pool.job("1.1").state == "failed"


def test_rule_06_a_program_that_opted_in_is_retried(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=2, retry={"program": True, "backoff": "1s"})
    worker = pool.worker()
    worker.finish(worker.take(), "failed")
    pool.sleep(3)
    assert worker.start() == ["1.1/2"]
    worker.finish("1.1/2", "failed")
    assert pool.job("1.1").state == "failed"


def test_rule_06_infrastructure_failures_are_retried_after_a_backoff_while_attempts_are_left(
    pool: InProcessCoordinator,
) -> None:
    pool.submit(max_attempts=2, retry={"backoff": "30s"})
    worker, other = pool.worker("pc1"), pool.worker("pc2")
    worker.finish(worker.take(), "error", reason="no such image")
    assert pool.job("1.1").state == "queued"
    assert other.claim() == []
    pool.sleep(33)
    assert other.start() == ["1.1/2"]
    other.finish("1.1/2", "error", reason="no such image")
    job = pool.job("1.1")
    assert (job.state, job.reason, job.attempts) == ("failed", "no such image", 2)


def test_rule_06_a_job_that_a_machine_could_not_run_is_offered_elsewhere_first(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=3, retry={"backoff": "3s"})
    worker, other = pool.worker("pc1"), pool.worker("pc2")
    worker.finish(worker.take(), "error", reason="no such image")
    pool.sleep(6)
    assert worker.claim() == []
    assert other.claim() == ["1.1/2"]


def test_rule_06_without_another_machine_the_same_one_gets_the_job_in_the_end(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=3, retry={"backoff": "3s"})
    worker = pool.worker("pc1")
    worker.finish(worker.take(), "error", reason="no such image")
    for _ in range(30):
        pool.sleep(3)
        worker.beat()
    assert worker.claim() == ["1.1/2"]


def retries(pool: InProcessCoordinator) -> float | None:
    return pool.ctx.metrics.registry.get_sample_value("deborgen_job_retries_total")


def test_every_job_that_is_queued_again_counts_as_one_retry_however_its_attempt_ended(
    pool: InProcessCoordinator,
) -> None:
    """Seen to fail when results count the runs whose jobs were queued again."""
    pool.submit(sweep={"grid": {"n": [1, 2, 3]}}, max_attempts=9, retry={"backoff": "3s"})
    worker = pool.worker()
    held = worker.start(3)
    results = [m.Result(attempt=attempt, outcome="error", reason="no image") for attempt in held]
    finish(pool.ctx, worker.actor, worker.name, m.Finish(session=worker.session, results=results))
    assert retries(pool) == 3
    pool.sleep(6)
    assert len(pool.worker("pc2").start(3)) == 3
    pool.sleep(PAST_LEASE + 6)
    assert retries(pool) == 6, "three leases ran out"
    third = pool.worker("pc3")
    third.take()
    third.restart()
    assert retries(pool) == 7, "a restart lost one"
    third.take()
    third.leave()
    assert retries(pool) == 8, "the worker left, and gave one back"


def test_rule_07_a_release_costs_no_attempt(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=1)
    worker = pool.worker()
    for number in range(1, 5):
        (attempt,) = worker.start()
        assert attempt == f"1.1/{number}"
        worker.finish(attempt, "released", reason="paused by its owner")
        job = pool.job("1.1")
        assert (job.state, job.attempts) == ("queued", 0)
    assert [attempt.outcome for attempt in pool.job("1.1").history] == ["released"] * 4


def test_rule_07_a_worker_that_leaves_releases_all_it_held(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2, 3]}})
    worker = pool.worker()
    worker.start(3)
    worker.leave()
    worker.leave()
    assert pool.run(1).jobs.queued == 3
    assert pool.types(worker="pc1").count("worker.left") == 1
    assert pool.worker("pc2").claim(3) == ["1.1/2", "1.2/2", "1.3/2"]


def test_rule_07_an_older_twin_that_leaves_releases_nothing_of_the_newer_session(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    old = worker.session
    worker.restart()
    (attempt,) = worker.start()
    expect_refusal(Code.SUPERSEDED, leave, pool.ctx, worker.actor, worker.name, old)
    assert worker.beat(attempt) == {attempt: "continue"}


def test_rule_08_a_worker_that_was_away_resumes_its_lease(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=2)
    worker = pool.worker()
    (attempt,) = worker.start()
    pool.sleep(PAST_LEASE)
    assert pool.job("1.1").state == "queued"
    assert worker.beat(attempt) == {attempt: "continue"}
    assert "lease.resumed" in pool.types(job="1.1")
    assert worker.finish(attempt) == "accepted"
    job = pool.job("1.1")
    assert (job.state, job.attempts, len(job.history)) == ("succeeded", 1, 1)


def test_rule_08_the_result_of_a_worker_that_was_away_counts_too(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=2)
    worker = pool.worker()
    (attempt,) = worker.start()
    pool.sleep(PAST_LEASE)
    assert worker.finish(attempt) == "accepted"
    assert pool.job("1.1").state == "succeeded"


def test_rule_08_once_another_worker_has_claimed_the_job_the_old_attempt_is_stale(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=2, retry={"backoff": "1s"})
    worker, other = pool.worker("pc1"), pool.worker("pc2")
    (attempt,) = worker.start()
    pool.sleep(PAST_LEASE)
    assert other.start() == ["1.1/2"]
    assert worker.beat(attempt) == {attempt: "stop"}


def test_rule_09_time_in_which_the_coordinator_was_down_does_not_count(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    pool.sleep(LEASE - 5)
    pool.restart(down_for=86_400)
    pool.sleep(LEASE - 5)
    assert pool.job("1.1").state == "running"
    assert worker.beat(attempt) == {attempt: "continue"}


def test_rule_09_a_lease_check_that_comes_far_too_late_expires_nothing(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    worker.start()
    pool.clock.pass_by(10 * LEASE)  # stopped or asleep: no lease check in all that time
    pool.lease_checker.run_once()
    pool.sleep(LEASE)
    assert pool.job("1.1").state == "running"
    pool.sleep(PAST_LEASE - LEASE)
    assert pool.job("1.1").state == "failed"


def test_rule_09_a_lease_check_during_which_a_heartbeat_waited_expires_nothing(pool: InProcessCoordinator) -> None:
    """Seen to fail when waiting heartbeats are not noticed."""
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    pool.sleep(LEASE - 2 * LEASE_CHECK_SECONDS)
    pool.ctx.renewal_waits.begin("a heartbeat")
    pool.sleep(HEARTBEAT + LEASE_CHECK_SECONDS)
    pool.ctx.renewal_waits.end("a heartbeat")
    pool.sleep(LEASE - LEASE_CHECK_SECONDS)
    assert pool.job("1.1").state == "running"
    assert worker.beat(attempt) == {attempt: "continue"}
    pool.sleep(PAST_LEASE)
    assert pool.job("1.1").state == "failed"


def test_rule_09_a_heartbeat_that_waits_for_ever_keeps_no_lease_alive(pool: InProcessCoordinator) -> None:
    """Seen to fail when each lease check during which a heartbeat waits counts as late."""
    pool.submit()
    pool.worker().start()
    pool.ctx.renewal_waits.begin("a heartbeat")
    pool.sleep(HEARTBEAT + MOST_LATE_CHECKS * LEASE_CHECK_SECONDS + PAST_LEASE)
    assert pool.job("1.1").state == "failed"


def test_rule_10_a_restarted_worker_keeps_the_attempts_that_it_holds(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2]}})
    worker = pool.worker()
    first, second = worker.start(2)
    assert worker.restart(holding=[first]) == [second]
    assert pool.job("1.2").history[0].outcome == "lost"
    assert worker.beat(first) == {first: "continue"}
    assert worker.finish(first) == "accepted"


def test_rule_10_an_attempt_that_was_never_named_is_released_by_a_restart(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    worker.claim()
    worker.restart()
    job = pool.job("1.1")
    assert (job.state, job.attempts) == ("queued", 0)


def test_rule_10_a_repeated_registration_loses_nothing_and_gets_the_same_answer(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2]}}, max_attempts=2)
    worker = pool.worker()
    (first,) = worker.start()
    lost = worker.restart()
    assert lost == [first]
    (second,) = worker.start()
    assert worker.register() == [first]
    assert worker.beat(second) == {second: "continue"}


def test_rule_11_a_result_is_accepted_as_long_as_the_lease_could_not_expire(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    pool.restart(down_for=5 * 86_400)
    assert worker.finish(attempt) == "accepted"


def test_rule_12_a_result_counts_only_with_all_its_blobs(pool: InProcessCoordinator) -> None:
    pool.submit(artifacts=["out.txt"])
    worker = pool.worker()
    (attempt,) = worker.start()
    data = b"forty-two"
    digest = hashlib.sha256(data).hexdigest()
    artifact = m.Artifact(path="out.txt", sha256=digest, size=len(data))
    assert worker.finish(attempt, artifacts=[artifact]) == "missing_blobs"
    assert (pool.job("1.1").state, pool.job("1.1").artifacts) == ("running", [])
    blobs.put(pool.ctx, digest, [data])
    assert worker.finish(attempt, artifacts=[artifact]) == "accepted"
    assert [(a.path, a.sha256, a.size) for a in pool.job("1.1").artifacts] == [("out.txt", digest, 9)]


def test_rule_13_a_cancel_of_a_queued_job_is_a_promise(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2]}})
    assert pool.cancel("1.1") == {"1.1": "canceled"}
    assert pool.worker().claim(5) == ["1.2/1"]
    assert pool.cancel("1.1") == {"1.1": "already_terminal"}


def test_rule_13_a_cancel_reads_and_writes_in_one_transaction(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when the job is looked up before the transaction that cancels it."""
    pool.submit()

    def read(*_: Any) -> None:
        raise AssertionError("a look outside the transaction that writes")

    with monkeypatch.context() as watched:
        watched.setattr(pool.ctx.store, "read", read)
        expect_refusal(Code.NOT_FOUND, pool.cancel, "1.2")
        expect_refusal(Code.NOT_FOUND, pool.cancel, "2.1")
        assert pool.cancel("1.1") == {"1.1": "canceled"}


def test_rule_13_a_cancel_of_a_running_job_goes_with_the_next_heartbeat(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    assert pool.cancel("1") == {"1.1": "cancel_requested"}
    assert worker.beat(attempt) == {attempt: "cancel"}
    assert worker.finish(attempt, "canceled") == "accepted"
    assert pool.job("1.1").state == "canceled"


def test_a_run_that_was_canceled_as_a_whole_is_canceled_even_if_a_job_failed(pool: InProcessCoordinator) -> None:
    for _ in range(2):
        pool.submit(sweep={"grid": {"n": [1, 2]}})
    worker = pool.worker()
    for _ in range(2):
        (attempt,) = worker.start()
        worker.finish(attempt, "failed", exit_code=3)
        pool.cancel("1" if attempt.startswith("1.") else "2.2")
    found = {run: pool.run(run).state for run in (1, 2)}
    assert found == {1: "canceled", 2: "failed"}, "only run 1 was canceled as a whole"
    for state, run in (("canceled", 1), ("failed", 2)):
        listed = list_runs(pool.ctx, RunsQuery(state=State(state)))
        assert [each.id for each in listed.items] == [run]
    pool.cancel("2")
    assert pool.run(2).state == "failed", "it had ended before"


def test_rule_13_if_the_program_finished_first_its_result_wins(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    (attempt,) = worker.start()
    pool.cancel("1.1")
    assert worker.finish(attempt) == "accepted"
    assert pool.job("1.1").state == "succeeded"


@pytest.mark.parametrize("end", ["lost", "error", "released"])
def test_rule_13_a_job_with_a_requested_cancel_is_never_retried(pool: InProcessCoordinator, end: str) -> None:
    """Seen to fail, by the reason, when the end of the attempt is the reason of the job."""
    pool.submit(max_attempts=5, retry={"program": True})
    worker = pool.worker()
    (attempt,) = worker.start()
    pool.cancel("1.1")
    if end == "lost":
        pool.sleep(PAST_LEASE)
    else:
        worker.finish(attempt, end, reason="the disk is full")
    job = pool.job("1.1")
    assert (job.state, job.reason) == ("canceled", "canceled by alice")
    assert job.history[0].reason != job.reason


def test_rule_14_a_worker_that_renews_past_the_limit_is_ended(pool: InProcessCoordinator) -> None:
    pool.submit(timeout="60s")
    worker = pool.worker()
    (attempt,) = worker.start()
    for turn in range(1, 13):
        pool.sleep(9)
        answer = worker.beat(attempt, began_seconds_ago=turn * 9.0)
    assert answer == {attempt: "stop"}
    job = pool.job("1.1")
    assert (job.state, job.history[0].outcome) == ("failed", "timeout")


def test_rule_14_only_used_time_counts_and_preparation_has_its_own_limit(pool: InProcessCoordinator) -> None:
    """Seen to fail when time in which a program was stopped counts, or the time that its image took to download."""
    pool.submit(timeout="60s")
    worker = pool.worker()
    (attempt,) = worker.start()
    for _ in range(30):  # its image takes its time
        pool.sleep(9)
        assert worker.beat(attempt) == {attempt: "continue"}
    for turn in range(1, 31):  # and then its owner stops it after its first second
        pool.sleep(9)
        answer = worker.beat(attempt, began_seconds_ago=turn * 9.0, stopped_seconds=turn * 9.0 - 1, standing="frozen")
        assert answer == {attempt: "continue"}
    assert worker.finish(attempt) == "accepted"


def test_frozen_attempts_that_other_machines_have_room_for_are_wanted(pool: InProcessCoordinator) -> None:
    """Seen to fail when the answer does not say what others could run, and when it counts the same room twice."""
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 3}}}, resources={"cpus": 2, "memory": "1GiB"})
    worker = pool.worker()
    held = worker.start(3)
    assert len(held) == 3
    assert worker.heartbeat().wanted is msgspec.UNSET, "nothing is frozen"

    def wanted() -> Any:
        pool.sleep(2)  # the coordinator looks at its workers once per second
        return worker.heartbeat(state="paused", standing="frozen").wanted

    assert wanted() == [], "there is no other machine"
    other = pool.worker("pc2", cpus=4)
    assert other.heartbeat(free=other.capacity).wanted is msgspec.UNSET
    assert wanted() == held[:2], "it has room for two of them"
    other.heartbeat(free=m.Resources(cpus=1, memory=other.capacity.memory))
    assert wanted() == [], "it has too little room"
    other.heartbeat(free=other.capacity, state="paused")
    assert wanted() == [], "it takes no jobs"
    pool.worker("pc3", cpus=1)
    assert wanted() == [], "it is too small"
    assert worker.finish(held[0], outcome="released") == "accepted"
    other.heartbeat(free=other.capacity)
    assert other.start() == ["1.1/2"]


def test_rule_15_a_job_lost_on_three_machines_in_a_row_is_poisoned(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=50, retry={"backoff": "1s"})
    for at in range(3):
        worker = pool.worker(f"pc{at}")
        assert worker.start() == [f"1.1/{at + 1}"]
        pool.sleep(PAST_LEASE)
    job = pool.job("1.1")
    assert job.state == "failed"
    assert job.reason.startswith("poisoned")


def test_rule_15_a_job_lost_three_times_on_one_machine_is_not_poisoned(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=50, retry={"backoff": "1s"})
    for at in range(4):
        worker = pool.worker("pc1")
        assert worker.start() == [f"1.1/{at + 1}"]
        pool.sleep(2 * LEASE + 30)
    assert pool.job("1.1").state == "queued"


def test_rule_15_jobs_lost_together_count_as_one_failure(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 20}}})
    worker = pool.worker()
    worker.start(8)
    pool.sleep(PAST_LEASE)
    worker.restart()
    assert len(worker.claim(2)) == 2


def test_a_silent_worker_is_offline_until_its_next_heartbeat(pool: InProcessCoordinator) -> None:
    """Seen to fail when the lease check does not look for silent workers."""
    worker, talker = pool.worker("pc1"), pool.worker("pc2")
    for _ in range(int(LEASE / 10)):
        pool.sleep(10)
        talker.beat()
    assert get_worker(pool.ctx, "pc1").state == "open", "one lease of silence is not too long"
    pool.sleep(10)
    gone = get_worker(pool.ctx, "pc1")
    assert (gone.state, gone.reason) == ("offline", "no heartbeat for longer than a lease")
    assert get_worker(pool.ctx, "pc2").state == "open"
    [offline] = [event for event in pool.events() if event.type == "worker.offline"]
    assert (offline.worker, offline.actor) == ("pc1", "admin:coordinator")
    worker.beat()
    assert get_worker(pool.ctx, "pc1").state == "open"
    assert pool.types(worker="pc1") == ["worker.registered", "worker.online", "worker.offline", "worker.online"]


def test_rule_16_the_history_tells_who_ran_what_where_and_how_it_ended(pool: InProcessCoordinator) -> None:
    pool.submit(by="alice")
    worker = pool.worker("pc1")
    worker.finish(worker.take(), "failed", exit_code=3)
    story = [(e.type, e.actor, e.worker, e.attempt, e.old_state, e.new_state) for e in pool.events(run=1)]
    assert story == [
        ("run.submitted", "submitter:alice", None, None, None, "queued"),
        ("job.queued", "submitter:alice", None, None, None, "queued"),
        ("lease.granted", "worker:pc1", "pc1", "1.1/1", None, None),
        ("job.started", "worker:pc1", "pc1", "1.1/1", "queued", "running"),
        ("job.failed", "worker:pc1", "pc1", "1.1/1", "running", "failed"),
    ]
    assert [event.seq for event in pool.events()] == list(range(1, len(pool.events()) + 1))


def test_a_transition_that_is_not_in_the_table_is_refused(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    worker.finish(worker.take())
    expect_refusal(Code.INVALID_TRANSITION, retry_run, pool.ctx, person("alice"), 1, m.Retry(only="failed"))
    assert pool.cancel("1.1") == {"1.1": "already_terminal"}


def test_a_refused_transition_is_in_the_history_and_changes_nothing_else(
    pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail when the refusal is rolled back with everything else."""
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    for refuses in ("the table", "the database"):
        before = len(pool.events())
        with monkeypatch.context() as patch:
            if refuses == "the table":
                patch.delitem(TRANSITIONS, (State.RUNNING, LifecycleEvent.SUCCEEDED))
            else:
                patch.setattr(job_rows, "finish", lambda *_, **__: 0)
            expect_refusal(Code.INVALID_TRANSITION, worker.finish, attempt)
        [event] = pool.events()[before:]
        assert (event.type, event.job, event.attempt, event.worker) == ("transition.refused", "1.1", attempt, "pc1")
        assert (event.actor, event.old_state, event.new_state) == ("worker:pc1", "running", None)
        assert event.data == {"event": "succeeded"}
        assert pool.job("1.1").state == "running"
    assert worker.finish(attempt) == "accepted"
    assert pool.audit().clean


def test_a_refused_claim_is_in_the_history(pool: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.submit()
    worker = pool.worker()
    with monkeypatch.context() as patch:
        patch.setattr(job_rows, "start", lambda *_: 0)
        expect_refusal(Code.INVALID_TRANSITION, worker.claim)
    event = pool.events()[-1]
    assert (event.type, event.job, event.old_state) == ("transition.refused", "1.1", "running")
    assert event.data == {"event": "claimed"}
    assert worker.claim() == ["1.1/1"]


def test_only_the_submitter_or_an_admin_cancels(pool: InProcessCoordinator) -> None:
    pool.submit(by="alice")
    expect_refusal(Code.FORBIDDEN, pool.cancel, "1", by="bob")
    assert get_job(pool.ctx, 1, 1).state == "queued"


def test_the_database_allows_at_most_one_live_attempt_per_job(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    worker.start()
    row = (1 << 20 | 1, 2, 1, worker.session, 1, 0.0, 100.0, 100.0, 0.0)
    with pytest.raises(Exception, match=r"(?i)unique"):
        pool.ctx.store.write(lambda tx: attempt_rows.grant(tx, [row]))
