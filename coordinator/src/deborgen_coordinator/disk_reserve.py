"""A reserve on the disk: when the disk is full, there is still room for heartbeats and results.

A file holds the space. When the disk becomes full, the file is deleted, and submits, logs and uploads are refused until
there is room again. No lease is lost to a full disk, and nothing has to be restarted afterwards.
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

#: Requests that fill the disk have it measured this often. A failed write has it measured at once.
MEASURE_SECONDS = 0.5


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
        """Release the space if the disk is full, and reserve it again once there is room."""
        if not self._size:
            return
        self._measured_at = time.monotonic()
        free = self._free()
        if self._held and free < self._size // 4:
            with self._lock:
                self._file.unlink(missing_ok=True)
                self._held = False
            log.error("the disk is full; only heartbeats and results are written until there is room")
        elif not self._held and free > 2 * self._size:
            with self._lock:
                if not self._held and self._hold():
                    log.warning("there is room on the disk again")

    def has_room(self) -> bool:
        """Whether requests that fill the disk may be accepted."""
        if time.monotonic() - self._measured_at > MEASURE_SECONDS:
            self.measure()
        return self._held or not self._size

    def _hold(self) -> bool:
        """Reserve the space. A disk without room for it counts as full."""
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
