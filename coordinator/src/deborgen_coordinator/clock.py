"""Time comes from the edge: one clock for the record, one for decisions."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall(self) -> float:
        """Seconds since 1970, for the record alone. It may jump; nothing may be decided by it."""

    def steady(self) -> float:
        """Seconds that never jump, and mean something only within this process."""


class SystemClock:
    def wall(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()
