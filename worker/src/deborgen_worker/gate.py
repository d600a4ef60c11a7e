"""Whether new work may be taken, and if not, who closed the gate and why. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from deborgen_shared.messages import LEAST_YEAR, MOST_YEAR
from deborgen_shared.states import WorkerState

#: The keepers, who may close the gate, each with the worker's state while it is closed. If several have closed it, the
#: first in this order gives the state and the reason.
KEEPERS = {
    "leaving": WorkerState.DRAINING,
    "draining": WorkerState.DRAINING,
    "owner": WorkerState.PAUSED,
    "hours": WorkerState.CLOSED,
    "order": WorkerState.PAUSED,
    "disk": WorkerState.CLOSED,
    "runner": WorkerState.CLOSED,
    "token": WorkerState.CLOSED,
}


@dataclass
class Gate:
    """Whether new work may be taken, and if not, why: one reason per keeper."""

    reasons: dict[str, str] = field(default_factory=dict)
    #: When each keeper will open the gate again, in wall-clock time, if that is known.
    ends: dict[str, float] = field(default_factory=dict)

    def close(self, keeper: str, reason: str, until: float | None = None) -> bool:
        """Close the gate for this keeper. True if its reason is new."""
        news = self.reasons.get(keeper) != reason
        if until is None:
            self.ends.pop(keeper, None)
        else:
            self.ends[keeper] = until
        self.reasons[keeper] = reason
        return news

    def open(self, keeper: str) -> bool:
        self.ends.pop(keeper, None)
        return self.reasons.pop(keeper, None) is not None

    @property
    def closed(self) -> bool:
        return bool(self.reasons)

    @property
    def state(self) -> WorkerState:
        """The worker's state, from the first keeper that has closed the gate."""
        if first := self._first():
            return KEEPERS[first]
        return WorkerState.PAUSED if self.reasons else WorkerState.OPEN

    @property
    def reason(self) -> str:
        return self.reasons.get(self._first(), "")

    @property
    def until(self) -> datetime | None:
        """When the first keeper will open the gate again; None if that is not known, or too far away to be sent."""
        return moment(self.ends.get(self._first()))

    def _first(self) -> str:
        return next((keeper for keeper in KEEPERS if keeper in self.reasons), "")


def moment(seconds: float | None) -> datetime | None:
    """A wall-clock time as a date; None if the coordinator would refuse it, for example the year 12000."""
    if seconds is None:
        return None
    try:
        found = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return found if LEAST_YEAR <= found.year <= MOST_YEAR else None
