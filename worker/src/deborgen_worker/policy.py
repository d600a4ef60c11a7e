"""What the owner allows: which resources, at which hours, and whether the worker is paused. Time is an argument."""

from __future__ import annotations

import contextlib
from datetime import datetime, time
from pathlib import Path
from typing import NamedTuple

import msgspec

from deborgen_worker import host
from deborgen_worker.capacity import Amount
from deborgen_worker.disk import Disk
from deborgen_worker.settings import WorkerSettings

DAY = 86400.0


def offered(settings: WorkerSettings, disk: Disk, state: Path) -> Amount:
    """The resources for all jobs together. Without a setting it is all that the machine has, less a part of its memory
    and disk for its owner."""
    space = max(0, disk.free(state) - settings.min_free_disk)
    return Amount(
        cpus=settings.cpus or float(host.processors()),
        memory=settings.memory or host.memory() - host.memory() // 8,
        gpus=len(host.gpus()) if settings.gpus < 0 else min(settings.gpus, len(host.gpus())),
        disk=min(settings.disk, space) if settings.disk else space,
    )


class Closed(NamedTuple):
    """The owner's hours are over since this many seconds, and begin again in this many."""

    since: float
    opens_in: float


def outside(hours: str, now: datetime) -> Closed | None:
    """Whether the local time of day is outside the owner's hours, which may span midnight; None within them."""
    if not hours:
        return None
    first, last = (_seconds(time.fromisoformat(part)) for part in hours.split("-"))
    at = _seconds(now.time())
    if first <= at < last if first <= last else at >= first or at < last:
        return None
    return Closed((at - last) % DAY, (first - at) % DAY)


def _seconds(at: time) -> float:
    return at.hour * 3600 + at.minute * 60 + at.second + at.microsecond / 1e6


class Pause(msgspec.Struct):
    """The owner's pause. `until` is on the wall clock; None means until `resume`. `--now` sets `frozen`.

    `since` is when it began, also on the wall clock. In a file of an earlier release it is missing, and read from the
    file's own time.
    """

    until: float | None = None
    frozen: bool = False
    since: float | None = None


class PauseFile:
    """The pause on disk. It survives a restart, and can be set while no worker is running."""

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
        if pause.since is None:
            with contextlib.suppress(OSError):
                pause.since = self._path.stat().st_mtime
        return pause

    def write(self, until: float | None, frozen: bool, since: float | None = None) -> None:
        self._disk.replace(self._path, msgspec.json.encode(Pause(until, frozen, since)))

    def clear(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._disk.sync_folder(self._path.parent)
