"""How long the calls that keep leases alive wait: heartbeats, results and registrations.

A worker whose heartbeat waits here cannot renew its leases, although it does its part. So the lease check asks whether
one waited for longer than the heartbeat period.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class RenewalWaits:
    """Since when each call in progress waits. Threads share it without a lock: each step is one operation of a dict."""

    def __init__(self, now: Callable[[], float], longest: float) -> None:
        self._now, self._longest = now, longest
        self._since: dict[Hashable, float] = {}
        self._late = False

    def begin(self, call: Hashable) -> None:
        self._since[call] = self._now()

    def end(self, call: Hashable) -> None:
        since = self._since.pop(call, None)
        if since is not None and self._now() - since > self._longest:
            self._late = True

    def were_late(self) -> bool:
        """Whether a call has waited too long since the last question, or is waiting too long now."""
        late, self._late = self._late, False
        return late or any(self._now() - since > self._longest for since in list(self._since.values()))
