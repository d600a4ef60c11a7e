"""The two clocks: a wall clock for records, and a steady clock for decisions. Tests pass in their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall(self) -> float:
        """Seconds since 1970, only for records. This clock may jump, so no decision may depend on it."""

    def steady(self) -> float:
        """Seconds on a clock that never jumps, meaningful only within this process."""


class SystemClock:
    def wall(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()
