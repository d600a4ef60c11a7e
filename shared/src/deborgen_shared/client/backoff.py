"""Exponential back-off with jitter, so that many clients do not retry at the same moment."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

#: The pause stops doubling after this many failures. Every caller's limit is reached long before.
MOST_DOUBLINGS = 16


@dataclass
class BackOff:
    """`after_failure` returns the seconds to wait before the next try; `reset` starts over after a success."""

    first: float = 0.25
    most: float = 60.0
    random: random.Random = field(default_factory=random.Random)
    failures: int = 0

    def after_failure(self, wanted: float | None = None, most: float | None = None) -> float:
        """`wanted` is the pause that the other side asked for; `most` limits this pause only."""
        self.failures += 1
        longest = min(self.most, most or self.most)
        if wanted:
            return min(wanted * self.random.uniform(1.0, 1.25), longest)
        grown = float(self.first * 2 ** min(self.failures - 1, MOST_DOUBLINGS))
        return min(grown, longest) * self.random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.failures = 0
