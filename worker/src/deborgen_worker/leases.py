"""How long a lease is certainly alive, on this machine's own clock. It is never compared with the coordinator's clock.

A lease begins after the request that brought it was sent. So it lives at least until the moment of sending, plus the
time for which the request waited at the coordinator, plus the length of the lease.
"""

from __future__ import annotations

import time

#: A clock that counts the time in which the machine sleeps, because leases expire meanwhile. On macOS the monotonic
#: clock does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds on a clock that never steps and that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


def start_by(sent: float, lease_seconds: float, waited_seconds: float = 0.0) -> float:
    """The latest moment to start a program under a lease, given when its request was sent.

    It leaves a margin for the start itself, which takes a moment.
    """
    return sent + waited_seconds + lease_seconds - min(5.0, lease_seconds / 10)
