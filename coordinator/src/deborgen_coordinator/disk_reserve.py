"""Disk space that is reserved for heartbeats and results, so that they can be stored on a full disk.

A file holds the space. When the disk becomes full, the file is deleted, and submits, logs and uploads are refused until
there is space again. No lease is lost to a full disk, and nothing has to be restarted afterwards.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from pathlib import Path

from deborgen_shared.durable import set_aside

log = logging.getLogger("deborgen.disk")

#: Requests that fill the disk measure its free space again after this many seconds. A failed write does so at once.
MEASURE_SECONDS = 0.5
#: The disk counts as full while less than this part of the reserve is free, and as usable again above this many times
#: the reserve.
FULL_BELOW, USABLE_ABOVE = 0.25, 2


class DiskReserve:
    """Reserves `size` bytes in the folder for writes that must succeed; 0 reserves nothing."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self._size = folder, size
        self._file = folder / "reserve"
        self._lock = threading.Lock()
        self._held = False
        self._measured_at = 0.0
        if size:
            with self._lock:
                self._hold()

    def measure(self) -> None:
        """Release the reserved space if the disk is full, and reserve it again once the disk has enough."""
        if not self._size:
            return
        self._measured_at = time.monotonic()
        free = self._free()
        if self._held and free < FULL_BELOW * self._size:
            with self._lock:
                self._file.unlink(missing_ok=True)
                self._held = False
            log.error("the disk is full; only heartbeats and results are written until there is space")
        elif not self._held and free > USABLE_ABOVE * self._size:
            with self._lock:
                if not self._held and self._hold():
                    log.warning("there is space on the disk again")

    def has_space(self) -> bool:
        """Whether requests that fill the disk may be accepted."""
        if time.monotonic() - self._measured_at > MEASURE_SECONDS:
            self.measure()
        return self._held or not self._size

    def _hold(self) -> bool:
        """Reserve the space. If the disk does not have it, the disk counts as full."""
        try:
            with self._file.open("wb") as file:
                set_aside(file, self._size)
            self._held = True
        except OSError:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)
        return self._held

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize
