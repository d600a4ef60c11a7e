"""What the owner allows: how many resources, at which hours, and whether the worker is paused. Time is an argument."""

from __future__ import annotations

import contextlib
from datetime import datetime, time
from pathlib import Path

import msgspec

from deborgen_worker import host
from deborgen_worker.capacity import Amount
from deborgen_worker.disk import Disk
from deborgen_worker.settings import Settings


def offered(settings: Settings, disk: Disk, state: Path) -> Amount:
    """The resources for all jobs together: the owner's settings, or what the machine has less a share for its owner."""
    space = max(0, disk.free(state) - settings.min_free_disk)
    return Amount(
        cpus=settings.cpus or float(host.processors()),
        memory=settings.memory or host.memory() - host.memory() // 8,
        gpus=len(host.gpus()) if settings.gpus < 0 else min(settings.gpus, len(host.gpus())),
        disk=min(settings.disk, space) if settings.disk else space,
    )


def within(hours: str, now: datetime) -> bool:
    """Whether the local time of day is within the owner's hours, which may span midnight."""
    if not hours:
        return True
    first, last = (time.fromisoformat(part) for part in hours.split("-"))
    at = now.time().replace(second=0, microsecond=0)
    return first <= at < last if first <= last else at >= first or at < last


class Pause(msgspec.Struct):
    """The owner's pause. `until` is wall-clock time, or None until `resume`. `--now` sets `frozen`."""

    until: float | None = None
    frozen: bool = False


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
        return pause

    def write(self, until: float | None, frozen: bool) -> None:
        self._disk.replace(self._path, msgspec.json.encode(Pause(until, frozen)))

    def clear(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._disk.sync_folder(self._path.parent)
