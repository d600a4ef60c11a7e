"""When a lease ends, and what the end of an attempt means for its job.

Leases are counted on the *lease clock*: a number in the database that only the lease check moves forward, by the time
that has passed on its steady clock since the last check. While no coordinator runs, or while it is stopped or asleep,
the lease clock stands still. Changes of the wall clock do not affect it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from deborgen_shared.states import INFRASTRUCTURE_FAILURES, PROGRAM_FAILURES, Outcome, Phase

from .lifecycle import LifecycleEvent
from .loops import Place, is_last_round

#: At most this many lease checks in a row count as late because a heartbeat waited.
MOST_LATE_CHECKS = 3
#: The coordinator ends an attempt this many seconds after its time limit at the earliest: workers enforce the limit.
TIMEOUT_MARGIN_SECONDS = 30.0
#: A worker may take this many seconds to prepare an attempt: its image, its workspace and its inputs.
PREPARE_SECONDS = 3600.0
#: A job that was lost on this many different machines in a row is poisoned.
POISON_MACHINES = 3
LONGEST_BACKOFF = 3_600.0


@dataclass(frozen=True, slots=True)
class ClockMove:
    """How one lease check moves the lease clock; `regrant` gives every live lease one full period."""

    advance: float
    regrant: bool


def clock_move(elapsed: float | None, lease_seconds: float, late_checks: int = 0) -> ClockMove:
    """How the lease clock moves `elapsed` steady seconds after the last check (None: this is the first check).

    If a check comes far too late, no lease could have been renewed meanwhile: the clock stands still, and every live
    lease gets one full period. The same is true if a heartbeat waited for longer than the heartbeat period since the
    last check. `late_checks` counts how many checks in a row found such a heartbeat, this one included: only the first
    few of them count as late, so that a heartbeat that never ends cannot keep the leases of dead workers alive.
    """
    waited = 0 < late_checks <= MOST_LATE_CHECKS
    if elapsed is None or elapsed > too_late_after(lease_seconds) or elapsed < 0 or waited:
        return ClockMove(0.0, regrant=True)
    return ClockMove(elapsed, regrant=False)


def too_late_after(lease_seconds: float) -> float:
    """A check that comes more than this many seconds after the previous one is far too late."""
    return max(2 * lease_check_interval(lease_seconds), min(5.0, lease_seconds / 2))


def lease_check_interval(lease_seconds: float) -> float:
    """The seconds between two lease checks: a twentieth of a lease, but at most 3."""
    return min(3.0, max(0.05, lease_seconds / 20))


def longest_lag(lease_seconds: float) -> float:
    """How many seconds the stored lease clock can be behind the time that has really passed.

    It moves once per check, and the check may take one interval to commit. If it takes longer, all leases are extended.
    """
    return too_late_after(lease_seconds) + lease_check_interval(lease_seconds)


def lease_end(clock: float, lease_seconds: float) -> float:
    """The end, on the lease clock, of a lease that is granted or renewed now: never earlier than promised."""
    return clock + lease_seconds + longest_lag(lease_seconds)


def expires_at(now: float, clock: float, end: float, lease_seconds: float) -> float:
    """The promised end of a lease on the wall clock, to show to people. `end` is its end on the lease clock."""
    return now + end - clock - longest_lag(lease_seconds)


def deadline(clock: float, timeout: float, used: float | None = None) -> float:
    """When the coordinator ends an attempt whose worker renews the lease but does not enforce the time limit.

    `used` is how many seconds the program has run, not counting the time in which it was stopped. If it has not
    started (None), its preparation has an additional limit.
    """
    left = PREPARE_SECONDS + timeout if used is None else timeout - used
    return clock + left + max(TIMEOUT_MARGIN_SECONDS, 0.1 * timeout)


class EndedAttempt(NamedTuple):
    """An attempt that has ended, with everything that the verdict depends on.

    `cancel_reason` is why a person canceled the job, if somebody did. `lost_on` counts the different machines in a row
    that lost the job, or claimed it and never mentioned it again. In a loop, `place` is where the job stands, and
    `most` the number of rounds; `says_no` is the answer of a program that ended by itself with a nonzero exit code.
    """

    outcome: Outcome
    reason: str
    attempts: int
    max_attempts: int
    retry_program: bool
    backoff: float
    cancel_requested: bool
    cancel_reason: str = ""
    lost_on: int = 0
    place: Place | None = None
    most: int = 0
    says_no: bool = False

    @property
    def is_check(self) -> bool:
        return self.place is not None and self.place.phase is Phase.VERIFY


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a job whose attempt has ended, and why. The next attempt waits for `backoff` seconds.

    With `refund`, the ended attempt is not counted. With `avoid`, other machines come first for a while. `verified` is
    the answer of a check, which stands at `place`. A job of work that has succeeded in a loop has a `place` too.
    """

    event: LifecycleEvent
    reason: str = ""
    backoff: float = 0.0
    refund: bool = False
    avoid: bool = False
    verified: bool | None = None
    place: Place | None = None


def verdict(ended: EndedAttempt) -> Verdict:
    """What the end of an attempt means for its job. The lifecycle table gives the state that follows the event."""
    outcome, reason = ended.outcome, ended.reason
    infrastructure = outcome in INFRASTRUCTURE_FAILURES
    if outcome is Outcome.SUCCEEDED:
        return Verdict(LifecycleEvent.SUCCEEDED, place=ended.place, verified=True if ended.is_check else None)
    if outcome is Outcome.CANCELED or (ended.cancel_requested and (outcome is Outcome.RELEASED or infrastructure)):
        return Verdict(LifecycleEvent.CANCELED, ended.cancel_reason or reason)
    if ended.place is not None and ended.is_check and ended.says_no:
        return _not_verified(ended.place, ended.most)
    if ended.lost_on >= POISON_MACHINES:
        return Verdict(LifecycleEvent.FAILED, f"poisoned: lost on {ended.lost_on} different machines in a row")
    if outcome is Outcome.RELEASED:
        return Verdict(LifecycleEvent.REQUEUED, reason, refund=True, avoid=True)
    can_retry = infrastructure or (ended.retry_program and not ended.is_check and outcome in PROGRAM_FAILURES)
    if can_retry and ended.attempts < ended.max_attempts and not ended.cancel_requested:
        wait = min(max(LONGEST_BACKOFF, ended.backoff), ended.backoff * 2 ** max(0, ended.attempts - 1))
        return Verdict(LifecycleEvent.REQUEUED, reason, backoff=wait, avoid=infrastructure)
    return Verdict(LifecycleEvent.FAILED, reason)


def _not_verified(place: Place, most: int) -> Verdict:
    """A check that says no has done its job. Only if no further round is allowed, the loop has failed."""
    if is_last_round(place.round, most):
        reason = f"not verified after {place.round} round{'s' if place.round > 1 else ''}"
        return Verdict(LifecycleEvent.FAILED, reason, place=place, verified=False)
    return Verdict(LifecycleEvent.SUCCEEDED, place=place, verified=False)
