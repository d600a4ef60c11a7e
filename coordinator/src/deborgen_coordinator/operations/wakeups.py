"""Those who wait: claims for work, streams for events. A commit wakes them; a stop answers them all."""

from __future__ import annotations

import threading
from collections import Counter


class Wakeups:
    """Signals with a count each: look at the count, try, and wait until it has moved. So no wake-up is missed.

    At most `most` wait for work at the same time.
    """

    def __init__(self, most: int = 32) -> None:
        self._condition = threading.Condition()
        self._counts: Counter[str] = Counter()
        self._most = most
        self._waiting = 0
        self.closed = False

    def tell(self, signals: set[str]) -> None:
        with self._condition:
            self._counts.update(signals)
            self._condition.notify_all()

    def count(self, signal: str) -> int:
        with self._condition:
            return self._counts[signal]

    def wait(self, signal: str, seen: int, timeout: float) -> bool:
        """Whether the signal came since its count was `seen`, within so many seconds."""
        with self._condition:
            self._condition.wait_for(lambda: self.closed or self._counts[signal] != seen, max(0.0, timeout))
            return self._counts[signal] != seen

    def enter(self) -> bool:
        """Take one of the places to wait for work; False when all are taken."""
        with self._condition:
            if self._waiting >= self._most or self.closed:
                return False
            self._waiting += 1
            return True

    def leave(self) -> None:
        with self._condition:
            self._waiting -= 1

    def close(self) -> None:
        """Answer everybody who waits, now and from now on."""
        with self._condition:
            self.closed = True
            self._condition.notify_all()
