"""The clock of every test that moves time by hand."""

from __future__ import annotations


class FakeClock:
    """Wall time and steady time, which move only when the test moves them."""

    def __init__(self) -> None:
        self._wall = 1_800_000_000.0
        self._steady = 1_000.0

    def wall(self) -> float:
        return self._wall

    def steady(self) -> float:
        return self._steady

    def pass_by(self, seconds: float) -> None:
        """Move both clocks, as time does."""
        self._wall += seconds
        self._steady += seconds

    def step_wall(self, seconds: float) -> None:
        """Move only the wall clock, as when somebody sets it."""
        self._wall += seconds
