"""How long a worker keeps trying to upload to an object store that does not answer, or refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from deborgen_shared.client.backoff import BackOff
from deborgen_shared.client.transport import NoAnswer

#: An attempt whose artifacts could not be uploaded for this many seconds ends as an error.
PATIENCE_SECONDS = 900.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 60.0


@dataclass
class StorePatience:
    """The tries of each attempt, on the worker's clock."""

    clock: Callable[[], float]
    #: For each attempt, when its first try in a row failed, and its back-off.
    _failing: dict[str, tuple[float, BackOff]] = field(default_factory=dict)

    def ok(self, attempt: str) -> None:
        self._failing.pop(attempt, None)

    def failed(self, attempt: str, error: NoAnswer) -> float | None:
        """The seconds until the next try, or None if that was the last one."""
        now = self.clock()
        new = (now, BackOff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
        since, back_off = self._failing.setdefault(attempt, new)
        if now - since >= PATIENCE_SECONDS:
            self.ok(attempt)
            return None
        return back_off.after_failure(error.retry_after)
