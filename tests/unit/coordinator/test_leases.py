from __future__ import annotations

from typing import Any

import pytest

from deborgen_coordinator.leases import (
    ClockMove,
    EndedAttempt,
    Verdict,
    clock_move,
    lease_check_interval,
    verdict,
)
from deborgen_coordinator.lifecycle import LifecycleEvent
from deborgen_shared.states import Outcome


def judged(outcome: Outcome, **changes: Any) -> Verdict:
    facts: dict[str, Any] = {
        "reason": "why",
        "attempts": 1,
        "max_attempts": 3,
        "retry_program": False,
        "backoff": 10.0,
        "cancel_requested": False,
        "lost_on": 0,
    }
    return verdict(EndedAttempt(outcome, **{**facts, **changes}))


@pytest.mark.parametrize(
    ("outcome", "changes", "event"),
    [
        (Outcome.SUCCEEDED, {}, LifecycleEvent.SUCCEEDED),
        (Outcome.SUCCEEDED, {"cancel_requested": True}, LifecycleEvent.SUCCEEDED),
        (Outcome.FAILED, {}, LifecycleEvent.FAILED),
        (Outcome.FAILED, {"retry_program": True}, LifecycleEvent.REQUEUED),
        (Outcome.FAILED, {"retry_program": True, "attempts": 3}, LifecycleEvent.FAILED),
        (Outcome.FAILED, {"retry_program": True, "cancel_requested": True}, LifecycleEvent.FAILED),
        (Outcome.TIMEOUT, {}, LifecycleEvent.FAILED),
        (Outcome.OUT_OF_MEMORY, {}, LifecycleEvent.FAILED),
        (Outcome.CANCELED, {}, LifecycleEvent.CANCELED),
        (Outcome.ERROR, {}, LifecycleEvent.REQUEUED),
        (Outcome.ERROR, {"attempts": 3}, LifecycleEvent.FAILED),
        (Outcome.ERROR, {"cancel_requested": True}, LifecycleEvent.CANCELED),
        (Outcome.LOST, {"lost_on": 1}, LifecycleEvent.REQUEUED),
        (Outcome.LOST, {"lost_on": 3}, LifecycleEvent.FAILED),
        (Outcome.LOST, {"lost_on": 3, "cancel_requested": True}, LifecycleEvent.CANCELED),
        (Outcome.RELEASED, {"attempts": 3}, LifecycleEvent.REQUEUED),
        (Outcome.RELEASED, {"cancel_requested": True}, LifecycleEvent.CANCELED),
    ],
)
def test_what_the_end_of_an_attempt_means(outcome: Outcome, changes: dict[str, Any], event: LifecycleEvent) -> None:
    assert judged(outcome, **changes).event is event


def test_only_a_release_gives_the_attempt_back() -> None:
    assert [outcome for outcome in Outcome if judged(outcome).refund] == [Outcome.RELEASED]


def test_the_backoff_doubles_up_to_a_maximum() -> None:
    waits = [judged(Outcome.LOST, attempts=n, max_attempts=99).backoff for n in (1, 2, 3, 30)]
    assert waits == [10.0, 20.0, 40.0, 3600.0]


def test_a_long_backoff_of_the_job_file_is_kept() -> None:
    assert [judged(Outcome.LOST, attempts=n, max_attempts=9, backoff=7200.0).backoff for n in (1, 2)] == [7200.0] * 2


def test_a_poisoned_job_says_so() -> None:
    assert judged(Outcome.LOST, lost_on=3).reason.startswith("poisoned")


def test_the_lease_clock_stands_still_when_a_check_comes_too_late() -> None:
    assert clock_move(3.0, 60.0) == ClockMove(3.0, regrant=False)
    for gap in (None, 1000.0, -5.0):
        assert clock_move(gap, 60.0) == ClockMove(0.0, regrant=True)


def test_at_most_three_checks_in_a_row_are_late_because_a_heartbeat_waited() -> None:
    assert [clock_move(3.0, 60.0, count).regrant for count in range(6)] == [False, True, True, True, False, False]


@pytest.mark.parametrize("lease", [0.5, 1.0, 2.0, 5.0, 20.0, 60.0, 3600.0])
def test_a_stop_as_long_as_a_lease_expires_nothing_however_short_the_lease_is(lease: float) -> None:
    assert clock_move(lease, lease).regrant
    assert not clock_move(lease_check_interval(lease), lease).regrant


@pytest.mark.parametrize(("lease", "interval"), [(60.0, 3.0), (2.0, 0.1), (0.1, 0.05), (3600.0, 3.0)])
def test_leases_are_checked_often_enough(lease: float, interval: float) -> None:
    assert lease_check_interval(lease) == interval
