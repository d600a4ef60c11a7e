"""Claims that are repeated, that come with a finish, and whose attempts are never named; and how long a lease lasts."""

from __future__ import annotations

from datetime import datetime

import pytest

from deborgen_coordinator.leases import lease_check_interval, longest_lag, too_late_after
from deborgen_coordinator.operations.workers.claim import claim
from deborgen_shared import messages as m
from deborgen_shared.states import ResultAnswer
from support.in_process import LEASE, PAST_LEASE, InProcessCoordinator


def test_rule_02_a_repeated_claim_renews_the_leases(pool: InProcessCoordinator) -> None:
    """Seen to fail when a repeated claim renews nothing."""
    pool.submit()
    worker = pool.worker()
    [attempt] = worker.claim(request="r1")
    for _ in range(4):
        pool.sleep(LEASE - 5)
        assert worker.claim(request="r1") == [attempt]
    assert pool.job("1.1").state == "running"
    assert pool.job("1.1").history[0].outcome is None


def test_rule_02_a_repeated_claim_gets_only_the_attempts_that_still_live(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2]}})
    worker = pool.worker()
    first, second = worker.claim(2, request="r1")
    worker.finish(first)
    assert worker.claim(2, request="r1") == [second]


def test_rule_02_a_claim_that_found_nothing_does_not_consume_its_id(pool: InProcessCoordinator) -> None:
    worker = pool.worker()
    assert worker.claim(request="r1") == []
    pool.submit()
    assert worker.claim(request="r1") == ["1.1/1"]


def test_rule_02_a_lease_never_ends_before_the_promised_time_however_late_the_check_is(
    pool: InProcessCoordinator,
) -> None:
    """The lease is granted just before a lease check that comes as late as it may. Seen to fail when a lease ends at
    its time on the stored clock, without allowing for the delay of that clock."""
    late = too_late_after(LEASE) - 0.01
    pool.submit()
    worker = pool.worker()
    pool.clock.pass_by(late)
    [attempt] = worker.claim()
    left = LEASE
    while left > 0:
        pool.lease_checker.run_once()
        assert pool.job("1.1").state == "running", f"it ended {left:.1f} s before its time"
        step = min(late, left)
        pool.clock.pass_by(step)
        left -= step
    pool.lease_checker.run_once()
    assert worker.beat(attempt) == {attempt: "continue"}


@pytest.mark.parametrize("lease", [1.0, 2.0, 12.0, 60.0, 600.0])
def test_the_longest_lag_covers_a_late_check_and_its_commit(lease: float) -> None:
    assert longest_lag(lease) >= too_late_after(lease) + lease_check_interval(lease)


def test_rule_02_the_answer_says_how_long_the_request_waited(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    body = m.Claim(session=worker.session, request_id="r1", free=worker.capacity)
    answer = claim(pool.ctx, worker.actor, worker.name, body)
    assert isinstance(answer, m.Claimed)
    assert answer.waited_seconds == 0.0


def test_rule_08_an_attempt_that_was_never_named_is_resumed_and_counts(pool: InProcessCoordinator) -> None:
    """Its worker was cut off right after the claim, started it, and came back. Seen to fail when only an attempt that
    was lost can be resumed."""
    pool.submit(max_attempts=1)
    worker = pool.worker()
    [attempt] = worker.claim()
    pool.sleep(PAST_LEASE)
    assert (pool.job("1.1").state, pool.job("1.1").attempts) == ("queued", 0)
    assert worker.beat(attempt) == {attempt: "continue"}
    assert (pool.job("1.1").state, pool.job("1.1").attempts) == ("running", 1)
    assert worker.finish(attempt) == "accepted"
    assert pool.audit().findings == []


def test_rule_08_a_result_of_an_attempt_that_was_never_named_counts(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=1)
    worker = pool.worker()
    [attempt] = worker.claim()
    pool.sleep(PAST_LEASE)
    assert worker.finish(attempt) == "accepted"
    job = pool.job("1.1")
    assert (job.state, job.attempts) == ("succeeded", 1)


def test_rule_15_a_job_that_three_machines_claimed_and_never_named_is_poisoned(pool: InProcessCoordinator) -> None:
    """The job may crash its machine in the first second. Seen to fail when only lost attempts count."""
    pool.submit(max_attempts=1)
    for at in range(3):
        assert pool.worker(f"pc{at}").claim() == [f"1.1/{at + 1}"]
        pool.sleep(PAST_LEASE)
    job = pool.job("1.1")
    assert (job.state, job.attempts) == ("failed", 1)
    assert job.reason.startswith("poisoned")


def test_rule_15_a_job_whose_machines_crash_before_they_name_it_is_poisoned(pool: InProcessCoordinator) -> None:
    """Each machine is up again before the lease ends, and says that the attempt may have run. Seen to fail when only
    a heartbeat can name an attempt."""
    pool.submit(max_attempts=9, retry={"backoff": "1s"})
    for at in range(3):
        worker = pool.worker(f"pc{at}")
        [attempt] = worker.claim()
        assert worker.restart(gone=[attempt]) == [attempt]
        assert pool.job("1.1").history[at].outcome == "lost"
        pool.sleep(70)
    assert pool.job("1.1").reason.startswith("poisoned")


def test_rule_15_released_jobs_are_not_poisoned(pool: InProcessCoordinator) -> None:
    pool.submit(max_attempts=1)
    for at in range(4):
        worker = pool.worker(f"pc{at}")
        [attempt] = worker.claim()
        if at % 2:
            worker.leave()
        else:
            worker.finish(attempt, "released", reason="paused by its owner")
    assert pool.job("1.1").state == "queued"


def test_a_finish_carries_the_next_claim(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2, 3]}})
    worker = pool.worker()
    answer = worker.finish_and_claim(worker.take(), request="r2", most=2)
    assert answer.results == {"1.1/1": "accepted"}
    assert [each.attempt for each in answer.assignments or []] == ["1.2/1", "1.3/1"]
    assert answer.waited_seconds == 0.0


def test_a_finish_with_a_claim_may_be_repeated_as_a_whole_or_as_the_claim_alone(pool: InProcessCoordinator) -> None:
    """Seen to fail when a repeat gets another job."""
    pool.submit(sweep={"grid": {"n": [1, 2, 3]}})
    worker = pool.worker()
    first = worker.take()
    worker.finish_and_claim(first, request="r2")
    again = worker.finish_and_claim(first, request="r2")
    assert again.results == {first: "already_recorded"}
    assert [each.attempt for each in again.assignments or []] == ["1.2/1"]
    assert worker.claim(request="r2") == ["1.2/1"]


def test_the_answer_to_a_finish_without_a_claim_has_no_assignments_field(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    answer = worker.finish_and_claim(worker.take(), request=None)
    assert answer == m.Finished(results={"1.1/1": ResultAnswer.ACCEPTED})


def test_a_finish_that_finds_no_work_answers_with_no_assignments(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    assert worker.finish_and_claim(worker.take()).assignments == []


def test_a_finish_that_releases_a_job_gets_no_new_one(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": [1, 2]}})
    worker = pool.worker()
    answer = worker.finish_and_claim(worker.take(), "released")
    assert (answer.results, answer.assignments) == ({"1.1/1": "accepted"}, [])


def test_a_worker_that_must_rest_after_its_result_gets_no_job_with_it(pool: InProcessCoordinator) -> None:
    pool.submit(sweep={"grid": {"n": {"from": 1, "to": 20}}})
    worker = pool.worker()
    for _ in range(4):
        worker.finish(worker.take(), "error", reason="no disk")
    assert worker.finish_and_claim(worker.take(), "error", reason="no disk").assignments == []


def test_a_released_job_prefers_another_machine_for_a_minute(pool: InProcessCoordinator) -> None:
    """Seen to fail when the same machine gets a released job at once."""
    pool.submit()
    tired, fresh = pool.worker("tired"), pool.worker("fresh")
    pool.sleep(3)
    tired.finish(tired.take(), "released", reason="paused by its owner")
    assert tired.claim() == []
    assert fresh.claim() == ["1.1/2"]


@pytest.mark.parametrize("outcome", ["error", "released"])
def test_the_only_machine_gets_a_failed_job_again_as_soon_as_its_pause_is_over(
    pool: InProcessCoordinator, outcome: str
) -> None:
    """Seen to fail when a job avoids the machine that failed it for a minute, even if no other machine can run it."""
    pool.submit(max_attempts=3, retry={"backoff": "1s"}, requires={"gpu": True})
    only = pool.worker("only", labels={"gpu": True})
    pool.worker("other")
    only.finish(only.take(), outcome, reason="no disk")
    pool.sleep(3)
    assert only.claim() == ["1.1/2"]


@pytest.mark.parametrize("gone", ["offline", "paused", "left"])
def test_a_job_avoids_a_machine_only_while_another_one_could_take_it(pool: InProcessCoordinator, gone: str) -> None:
    """Seen to fail when the other machine counts although it is not there any more."""
    pool.submit(max_attempts=3, retry={"backoff": "1s"})
    tired, fresh = pool.worker("tired"), pool.worker("fresh")
    pool.sleep(3)
    tired.finish(tired.take(), "error", reason="no disk")
    pool.sleep(3)
    assert tired.claim() == [], "fresh could take it"
    if gone == "offline":
        for _ in range(5):
            pool.sleep(10)
            tired.beat()
        assert tired.claim() == [], "fresh is not offline yet"
        pool.sleep(6)
    elif gone == "paused":
        fresh.beat(state="paused")
    else:
        fresh.leave()
    pool.clock.pass_by(1.1)  # the workers are read at most once per second
    assert tired.claim() == ["1.1/2"]


def test_a_released_job_may_return_to_the_only_machine_that_can_run_it(pool: InProcessCoordinator) -> None:
    pool.submit(requires={"gpu": True})
    only = pool.worker("only", labels={"gpu": True})
    pool.worker("other")
    only.finish(only.take(), "released", reason="paused by its owner")
    assert only.claim() == ["1.1/2"]


def test_the_start_of_the_program_is_recorded_once_with_its_moment(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    attempt = worker.take()
    claimed = pool.job("1.1").history[0]
    assert claimed.started_at is None
    pool.sleep(30)
    worker.beat(attempt, began_seconds_ago=20.0)
    worker.beat(attempt, began_seconds_ago=21.0)
    worker.finish(attempt, began_seconds_ago=22.0)
    shown = pool.job("1.1").history[0]
    assert shown.claimed_at == claimed.claimed_at
    assert shown.started_at is not None
    assert (shown.started_at - shown.claimed_at).total_seconds() == pytest.approx(10.0)
    [event] = [each for each in pool.events(job="1.1") if each.type == "attempt.started"]
    assert event.attempt == attempt
    assert datetime.fromisoformat(event.data["started_at"]) == shown.started_at


def test_the_start_of_a_short_program_comes_with_its_result(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    [attempt] = worker.claim()
    worker.finish(attempt, began_seconds_ago=1e6)
    shown = pool.job("1.1").history[0]
    assert shown.started_at == shown.claimed_at, "no program begins before its claim"
    types = pool.types(job="1.1")
    assert types.index("job.started") < types.index("attempt.started") < types.index("job.succeeded")


def test_a_job_shows_when_its_lease_ends(pool: InProcessCoordinator) -> None:
    pool.submit()
    worker = pool.worker()
    [assignment] = worker.assignments()
    shown = pool.job("1.1").history[0]
    assert assignment.lease_expires_at is not None
    assert (assignment.lease_expires_at - shown.claimed_at).total_seconds() == pytest.approx(LEASE)
    assert shown.lease_expires_at == assignment.lease_expires_at
    [granted] = [each for each in pool.events(job="1.1") if each.type == "lease.granted"]
    assert datetime.fromisoformat(granted.data["lease_expires_at"]) == assignment.lease_expires_at
    worker.finish(assignment.attempt)
    assert pool.job("1.1").history[0].lease_expires_at is None
