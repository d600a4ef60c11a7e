"""What the owner allows: how much, at what hours, and whether just now. Time is an argument."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from pathlib import Path

import msgspec

from deborgen_shared.messages import LEAST_YEAR, MOST_YEAR
from deborgen_shared.states import WorkerState
from deborgen_worker import host
from deborgen_worker.capacity import Amount
from deborgen_worker.disk import Disk
from deborgen_worker.settings import Settings


def offered(settings: Settings, disk: Disk, state: Path) -> Amount:
    """What jobs may have in all, as the owner says, or else what the machine has with some left for its owner."""
    space = max(0, disk.free(state) - settings.min_free_disk)
    return Amount(
        cpus=settings.cpus or float(host.processors()),
        memory=settings.memory or host.memory() - host.memory() // 8,
        gpus=len(host.gpus()) if settings.gpus < 0 else min(settings.gpus, len(host.gpus())),
        disk=min(settings.disk, space) if settings.disk else space,
    )


def within(hours: str, now: datetime) -> bool:
    """Whether the local time of day is in the hours that the owner offers; they may go over midnight."""
    if not hours:
        return True
    first, last = (time.fromisoformat(part) for part in hours.split("-"))
    at = now.time().replace(second=0, microsecond=0)
    return first <= at < last if first <= last else at >= first or at < last


class Pause(msgspec.Struct):
    """The owner's pause. `until` is wall-clock time, None means until `resume`. `frozen` is what `--now` asked for."""

    until: float | None = None
    frozen: bool = False


class PauseFile:
    """The pause on disk: it holds over a restart, and can be set while no worker runs."""

    def __init__(self, state: Path, disk: Disk) -> None:
        self._path, self._disk = state / "pause.json", disk

    def read(self, now: float) -> Pause | None:
        try:
            pause = msgspec.json.decode(self._path.read_bytes(), type=Pause)
        except (OSError, msgspec.MsgspecError):
            return None
        if pause.until is not None and now >= pause.until:
            self.clear()
            return None
        return pause

    def write(self, pause: Pause) -> None:
        self._disk.replace(self._path, msgspec.json.encode(pause))

    def clear(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._disk.sync_folder(self._path.parent)


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
