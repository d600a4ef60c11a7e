"""Faults in the leases: their clock, their renewal, and who speaks for a worker."""

from __future__ import annotations

from typing import Any

from planted.fault import CHAOS, LIVE, NETWORK, Planted
from planted.patch import Patch, gives, nothing

LEASES = "deborgen_coordinator.leases"
OPERATIONS = "deborgen_coordinator.operations"
STORAGE = "deborgen_coordinator.storage"
CLAIMS = "contract/coordinator/test_claims.py"


def count_on_the_wall_clock(original: Any) -> Any:
    return lambda self: self._ctx.clock.wall()


def count_late_turns(original: Any) -> Any:
    """Only the first turn lets the clock stand still."""
    from deborgen_coordinator.leases import Turn

    def turn(elapsed: float | None, lease_seconds: float) -> Turn:
        return original(None, lease_seconds) if elapsed is None else Turn(elapsed, regrant=False)

    return turn


def start_with_two_leases_gone(original: Any) -> Any:
    from deborgen_coordinator.leases import Turn

    def turn(elapsed: float | None, lease_seconds: float) -> Turn:
        found: Turn = original(elapsed, lease_seconds)
        return Turn(2 * lease_seconds, regrant=False) if found.regrant else found

    return turn


def ask_again_at_once(original: Any) -> Any:
    from deborgen_coordinator.operations.workers.claim import NoWork

    def claim(*args: Any, **named: Any) -> Any:
        answer = original(*args, **named)
        return NoWork(0.0) if isinstance(answer, NoWork) else answer

    return claim


def renew_nothing(original: Any) -> Any:
    return lambda tx, held, *more: original(tx, [], *more)


def know_only_what_is_new(original: Any) -> Any:
    return lambda tx, worker_id: [held for held in original(tx, worker_id) if not held.named]


def take_any_session(original: Any) -> Any:
    from deborgen_coordinator.storage import workers

    def check_session(tx: Any, name: str, session: str) -> Any:
        worker = workers.get(tx, name, lock=True)
        return original(tx, name, worker.session if worker is not None else session)

    return check_session


PLANTED: list[Planted] = [
    Planted(
        "an attempt that is named a second time is taken for somebody else's",
        (Patch(f"{STORAGE}.attempts:live_of", know_only_what_is_new),),
        (f"{LIVE}_09_a_first_heartbeat_whose_answer_is_lost_starts_no_second_program",),
    ),
    Planted(
        "leases are counted on the wall clock",
        (
            Patch(f"{OPERATIONS}.maintenance.sweep:Sweeper._now", count_on_the_wall_clock),
            Patch(f"{LEASES}:turn", count_late_turns),
        ),
        (f"{CHAOS}_28_a_step_of_the_wall_clock_expires_nothing",),
    ),
    Planted(
        "time in which nobody could renew anything counts",
        (Patch(f"{LEASES}:turn", count_late_turns),),
        (f"{LIVE}_27_a_coordinator_stopped_for_longer_than_the_lease_loses_no_lease",),
    ),
    Planted(
        "a start of the coordinator counts as two leases gone by",
        (Patch(f"{LEASES}:turn", start_with_two_leases_gone),),
        (f"{LIVE}_26_a_restart_under_200_live_workers_loses_no_lease_and_makes_no_stampede",),
    ),
    Planted(
        "whoever finds no work asks again at once",
        (Patch(f"{OPERATIONS}.workers.claim:claim", ask_again_at_once),),
        (f"{LIVE}_26_a_restart_under_200_live_workers_loses_no_lease_and_makes_no_stampede",),
    ),
    Planted(
        "a lease ends when the stored clock says so, however late that clock is",
        (Patch(f"{LEASES}:longest_lag", gives(0.0)),),
        (f"{CLAIMS}::test_rule_02_a_lease_never_ends_before_the_promised_time_however_late_the_sweep_is",),
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
        ),
    ),
    Planted(
        "any session may speak for the worker",
        (Patch(f"{OPERATIONS}.workers.sessions:check_session", take_any_session),),
        (f"{NETWORK}_70_the_newer_of_two_workers_with_one_name_wins",),
        "TimeoutExpired|timed out",
    ),
]
