"""How long a lease is certainly alive, on this machine's own clock. No clocks of two machines are ever compared.

A lease begins after the request that brought it was sent and had waited at the coordinator. So it lives at least until
the moment of sending, plus that waiting time, plus the length of the lease.
"""

from __future__ import annotations

import time

#: A clock that also counts the time in which the machine sleeps, because leases expire in it. On macOS that is the
#: monotonic clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds on a clock that never jumps and that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


def start_by(sent: float, lease_seconds: float, waited_seconds: float = 0.0) -> float:
    """The latest moment to start a program under a lease, given when its request was sent.

    It leaves a margin, because the start itself takes a moment.
    """
    return sent + waited_seconds + lease_seconds - min(5.0, lease_seconds / 10)
