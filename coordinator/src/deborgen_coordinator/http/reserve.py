"""A reserve on the disk: when it is full, heartbeats and results still fit, and what would fill it further waits.

A file holds the space. When the disk runs full the file goes, and from then on submits, logs and uploads are refused
with 503 until there is room again. No lease is lost to a full disk, and nothing has to be restarted after it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from pathlib import Path

from deborgen_shared import headers
from deborgen_shared.durable import set_aside
from deborgen_shared.errors import Code, Refusal

log = logging.getLogger("deborgen.disk")

#: How often those who fill the disk have it measured. A write that fails has it measured at once.
LOOK_SECONDS = 0.5


class Reserve:
    """Space of `size` bytes in the folder, for those who must be able to write; 0 keeps none."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self._size = folder, size
        self._file = folder / "reserve"
        self._lock = threading.Lock()
        self._held = False
        self._looked = 0.0
        if size:
            with self._lock:
                self._hold()

    def look(self) -> None:
        """Give the space up if the disk is full, and take it again once there is room."""
        if not self._size:
            return
        self._looked = time.monotonic()
        free = self._free()
        if self._held and free < self._size // 4:
            with self._lock:
                self._file.unlink(missing_ok=True)
                self._held = False
            log.error("the disk is full: only heartbeats and results are written until there is room")
        elif not self._held and free > 2 * self._size:
            with self._lock:
                if not self._held and self._hold():
                    log.warning("there is room on the disk again")

    def require_room(self) -> None:
        """Refuse what would fill the disk further."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self.look()
        if self._size and not self._held:
            raise Refusal(
                Code.UNAVAILABLE,
                "The coordinator's disk is full.",
                "Try again later.",
                headers={headers.RETRY_AFTER: "30"},
            )

    def _hold(self) -> bool:
        """Take the space; a disk without room for it at the start counts as full."""
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
