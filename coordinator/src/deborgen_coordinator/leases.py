"""What a lease is, when it ends, and what a failed attempt costs the job.

Leases are counted on the *lease clock*: a number in the database that only the sweep moves forward, by the time that
passed on its steady clock since its last turn. While no coordinator runs, or it is stopped or asleep, the lease clock
stands still, and no step of the wall clock touches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from deborgen_shared.states import INFRASTRUCTURE_FAILURES, PROGRAM_FAILURES, Outcome

from .lifecycle import LifecycleEvent

#: An attempt gets this much beyond its timeout before the coordinator ends it: the worker is the one to enforce it.
TIMEOUT_MARGIN = 30.0
#: How long a worker may take to prepare an attempt: its image, its workspace, its inputs.
PREPARE_SECONDS = 3600.0
#: Lost on so many different machines in a row, a job is poison.
POISON_MACHINES = 3
#: So many infrastructure failures in a row, and a worker rests.
FAILURES_BEFORE_REST = 5
FIRST_REST = 600.0
LONGEST_REST = 86_400.0
LONGEST_BACKOFF = 3_600.0


@dataclass(frozen=True, slots=True)
class ClockMove:
    """What one turn of the sweep does to the lease clock."""

    advance: float
    regrant: bool


def clock_move(elapsed: float | None, lease_seconds: float) -> ClockMove:
    """How far the lease clock moves after `elapsed` steady seconds since the last turn (None: the first one).

    A turn that comes far too late means that nobody could have renewed anything: the clock stands still, and every
    live lease gets one full period more. However short leases are, half of one is far too late.
    """
    if elapsed is None or elapsed > too_late(lease_seconds) or elapsed < 0:
        return ClockMove(0.0, regrant=True)
    return ClockMove(elapsed, regrant=False)


def too_late(lease_seconds: float) -> float:
    """A turn that comes later than this after the one before it came far too late."""
    return max(2 * lease_check_interval(lease_seconds), min(5.0, lease_seconds / 2))


def lease_check_interval(lease_seconds: float) -> float:
    """The seconds between two turns of the sweep: a twentieth of a lease."""
    return min(3.0, max(0.05, lease_seconds / 20))


def longest_lag(lease_seconds: float) -> float:
    """How far the stored lease clock can be behind the time that has really passed.

    It moves once per turn, and a turn may take one interval to be committed; beyond that, all leases begin again.
    """
    return too_late(lease_seconds) + lease_check_interval(lease_seconds)


def lease_end(clock: float, lease_seconds: float) -> float:
    """When a lease ends that is granted or renewed now, on the lease clock: never earlier than was promised."""
    return clock + lease_seconds + longest_lag(lease_seconds)


def expires_at(now: float, clock: float, lease_clock: float, lease_seconds: float) -> float:
    """The promised end of a lease on the wall clock, for people."""
    return now + lease_clock - clock - longest_lag(lease_seconds)


def deadline(clock: float, timeout: float, used: float | None = None) -> float:
    """When the coordinator ends an attempt whose worker renews its lease and does not keep to the time limit.

    `used` is how long its program has run by now, without the time in which it was stopped. Before it began, its
    preparation may take its own time.
    """
    left = PREPARE_SECONDS + timeout if used is None else timeout - used
    return clock + left + max(TIMEOUT_MARGIN, 0.1 * timeout)


class EndedAttempt(NamedTuple):
    """An attempt that has ended, and all that the verdict on it depends on.

    `lost_on` counts the different machines in a row that lost the job, or took it and never named it again. `elsewhere`
    says whether another machine could take it: a job that was given back prefers that one.
    """

    outcome: Outcome
    reason: str
    attempts: int
    max_attempts: int
    retry_program: bool
    backoff: float
    cancel_requested: bool
    lost_on: int = 0
    elsewhere: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a job whose attempt ended, why, and how long it waits before the next try.

    `refund`: the attempt is not counted. `avoid`: the job is kept from the same machine for a while.
    """

    event: LifecycleEvent
    reason: str = ""
    backoff: float = 0.0
    refund: bool = False
    avoid: bool = False


def verdict(ended: EndedAttempt) -> Verdict:
    """What an attempt's end means for its job: the event. Which state follows, the table of the lifecycle says."""
    outcome, reason = ended.outcome, ended.reason
    infrastructure = outcome in INFRASTRUCTURE_FAILURES
    if outcome is Outcome.SUCCEEDED:
        return Verdict(LifecycleEvent.SUCCEEDED)
    if outcome is Outcome.CANCELED:
        return Verdict(LifecycleEvent.CANCELED, reason)
    if ended.cancel_requested and (outcome is Outcome.RELEASED or infrastructure):
        return Verdict(LifecycleEvent.CANCELED, reason)
    if ended.lost_on >= POISON_MACHINES:
        return Verdict(LifecycleEvent.FAILED, f"poisoned: lost on {ended.lost_on} different machines in a row")
    if outcome is Outcome.RELEASED:
        return Verdict(LifecycleEvent.REQUEUED, reason, refund=True, avoid=ended.elsewhere)
    again = infrastructure or (ended.retry_program and outcome in PROGRAM_FAILURES)
    if again and ended.attempts < ended.max_attempts and not ended.cancel_requested:
        wait = min(LONGEST_BACKOFF, ended.backoff * 2 ** max(0, ended.attempts - 1))
        return Verdict(LifecycleEvent.REQUEUED, reason, backoff=wait, avoid=infrastructure)
    return Verdict(LifecycleEvent.FAILED, reason)


def rest(failures: int, rests: int) -> float:
    """How long a worker rests after `failures` infrastructure failures in a row, having rested `rests` times before."""
    if failures < FAILURES_BEFORE_REST:
        return 0.0
    return min(LONGEST_REST, FIRST_REST * 2.0 ** min(rests, 32))  # a float ends at 2 to the 1024th
