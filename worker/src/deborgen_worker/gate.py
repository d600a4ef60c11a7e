"""Whether new work may be taken, and if not, who says so and why. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from deborgen_shared.messages import LEAST_YEAR, MOST_YEAR
from deborgen_shared.states import WorkerState

#: Who may close the gate, in the order in which their reasons are told, and what the worker is then.
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
    """Whether new work may be taken, and if not, why: one reason for each who may close it, the owner's first."""

    reasons: dict[str, str] = field(default_factory=dict)
    #: When those who know it will open the gate again, in wall-clock time.
    ends: dict[str, float] = field(default_factory=dict)

    def close(self, keeper: str, reason: str, until: float | None = None) -> bool:
        """True if that is news."""
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
        """What this makes of the worker: the word of the keeper whose reason is told."""
        if first := self._first():
            return KEEPERS[first]
        return WorkerState.PAUSED if self.reasons else WorkerState.OPEN

    @property
    def reason(self) -> str:
        return self.reasons.get(self._first(), "")

    @property
    def until(self) -> datetime | None:
        """When that keeper will open the gate again, if that is known and the calendar has such a day."""
        return moment(self.ends.get(self._first()))

    def _first(self) -> str:
        return next((keeper for keeper in KEEPERS if keeper in self.reasons), "")


def moment(seconds: float | None) -> datetime | None:
    """A wall-clock time as the coordinator takes it. A pause of ten thousand years has no end that can be told."""
    if seconds is None:
        return None
    try:
        found = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return found if LEAST_YEAR <= found.year <= MOST_YEAR else None
