"""Bugs in the leases: their clock, their renewal, and who speaks for a worker."""

from __future__ import annotations

from typing import Any

from planted.bug import CHAOS, LIVE, NETWORK, Planted
from planted.patch import Patch, gives, nothing

LEASES = "deborgen_coordinator.leases"
OPERATIONS = "deborgen_coordinator.operations"
STORAGE = "deborgen_coordinator.storage"
CLAIMS = "contract/coordinator/test_claims.py"


def count_on_the_wall_clock(original: Any) -> Any:
    return lambda self: self._ctx.clock.wall()


def count_late_checks(original: Any) -> Any:
    """Only the first lease check lets the clock stand still."""
    from deborgen_coordinator.leases import ClockMove

    def clock_move(elapsed: float | None, lease_seconds: float, late_checks: int = 0) -> ClockMove:
        return original(None, lease_seconds) if elapsed is None else ClockMove(elapsed, regrant=False)

    return clock_move


def start_with_two_leases_gone(original: Any) -> Any:
    from deborgen_coordinator.leases import ClockMove

    def clock_move(elapsed: float | None, lease_seconds: float, late_checks: int = 0) -> ClockMove:
        found: ClockMove = original(elapsed, lease_seconds)
        return ClockMove(2 * lease_seconds, regrant=False) if found.regrant else found

    return clock_move


def ask_again_at_once(original: Any) -> Any:
    from deborgen_coordinator.operations.workers.claim import NoJobs

    def claim(*args: Any, **named: Any) -> Any:
        answer = original(*args, **named)
        return NoJobs(0.0) if isinstance(answer, NoJobs) else answer

    return claim


def renew_nothing(original: Any) -> Any:
    return lambda tx, held, *more: original(tx, [], *more)


def know_only_unnamed_attempts(original: Any) -> Any:
    return lambda tx, worker_id: [held for held in original(tx, worker_id) if not held.named]


def take_any_session(original: Any) -> Any:
    from deborgen_coordinator.storage import workers

    def check_session(tx: Any, name: str, session: str) -> Any:
        worker = workers.get(tx, name, lock=True)
        return original(tx, name, worker.session if worker is not None else session)

    return check_session


PLANTED: list[Planted] = [
    Planted(
        "an attempt that is named a second time counts as another worker's",
        (Patch(f"{STORAGE}.attempts:held_by", know_only_unnamed_attempts),),
        (f"{LIVE}_09_a_first_heartbeat_whose_answer_is_lost_starts_no_second_program",),
    ),
    Planted(
        "leases are counted on the wall clock",
        (
            Patch(f"{OPERATIONS}.maintenance.lease_check:LeaseChecker._now", count_on_the_wall_clock),
            Patch(f"{LEASES}:clock_move", count_late_checks),
        ),
        (f"{CHAOS}_28_a_step_of_the_wall_clock_expires_nothing",),
    ),
    Planted(
        "time in which no lease could be renewed counts",
        (Patch(f"{LEASES}:clock_move", count_late_checks),),
        (f"{LIVE}_27_a_coordinator_stopped_for_longer_than_the_lease_loses_no_lease",),
    ),
    Planted(
        "a start of the coordinator counts as the time of two leases",
        (Patch(f"{LEASES}:clock_move", start_with_two_leases_gone),),
        (f"{LIVE}_26_a_restart_under_200_live_workers_loses_no_lease_and_makes_no_stampede",),
    ),
    Planted(
        "a worker that finds no job asks again at once",
        (Patch(f"{OPERATIONS}.workers.claim:claim", ask_again_at_once),),
        (f"{LIVE}_26_a_restart_under_200_live_workers_loses_no_lease_and_makes_no_stampede",),
    ),
    Planted(
        "a lease ends at its time on the stored clock, without allowing for the delay of that clock",
        (Patch(f"{LEASES}:longest_lag", gives(0.0)),),
        (f"{CLAIMS}::test_rule_02_a_lease_never_ends_before_the_promised_time_however_late_the_check_is",),
    ),
    Planted(
        "a repeated claim renews nothing",
        (Patch(f"{STORAGE}.attempts:renew_claim", nothing),),
        (f"{CLAIMS}::test_rule_02_a_repeated_claim_renews_the_leases",),
    ),
    Planted(
        "a heartbeat renews nothing",
        (Patch(f"{STORAGE}.attempts:renew", renew_nothing),),
        (f"{LIVE}_18_while_answers_are_lost_leases_are_renewed_and_nothing_happens_twice",),
    ),
    Planted(
        "a lost attempt is never resumed",
        (Patch(f"{OPERATIONS}.attempts.outcomes:may_resume", gives(False)),),
        (
            f"{NETWORK}_16_after_a_partition_longer_than_the_lease_the_same_attempt_goes_on",
            f"{NETWORK}_29_a_worker_that_slept_past_its_lease_goes_on_with_jobs_that_no_other_has_claimed",
            f"{NETWORK}_29_no_job_fails_when_a_whole_machine_sleeps_past_its_leases",
        ),
    ),
    Planted(
        "any session may speak for the worker",
        (Patch(f"{OPERATIONS}.workers.sessions:check_session", take_any_session),),
        (f"{NETWORK}_70_the_newer_of_two_workers_with_one_name_wins",),
        "TimeoutExpired|timed out",
    ),
]
