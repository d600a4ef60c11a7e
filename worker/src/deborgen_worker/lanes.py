"""Which attempts follow each other in a runner's lanes. Pure bookkeeping; the caller holds the lock.

The first of a lane runs, the others wait with the runner, which starts the next one without being told. So the room
of the first one passes down the lane, and nothing joins a lane that needs more room than the last one in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count


class Lanes:
    """A lane has a name of its own: the attempt that opened it may be called back and open another.

    The runner outlives this process and its lanes, so each process begins with a number that none before it has used.
    """

    def __init__(self, first_number: int = 0) -> None:
        self._numbers = count(first_number)
        self._queues: dict[str, deque[str]] = {}
        self._lane_of: dict[str, str] = {}

    def of(self, attempt: str) -> str:
        return self._lane_of[attempt]

    def open(self, attempt: str) -> None:
        """It has room of its own, and runs at once."""
        lane = f"lane {next(self._numbers)}"
        self._queues[lane] = deque([attempt])
        self._lane_of[attempt] = lane

    def join(self, attempt: str, behind: int, fits: Callable[[str, str], bool]) -> bool:
        """Put it at the end of the shortest lane that it fits, if fewer than `behind` wait there."""
        best: deque[str] | None = None
        for queue in self._queues.values():
            if len(queue) > behind or (best is not None and len(queue) >= len(best)):
                continue
            if fits(queue[0], queue[-1]):
                best = queue
        if best is None:
            return False
        self._lane_of[attempt] = self._lane_of[best[0]]
        best.append(attempt)
        return True

    def leave(self, attempt: str) -> str | None:
        """It is over, or called back. Returns the one that runs in its place."""
        lane = self._lane_of.pop(attempt, None)
        if lane is None:
            return None
        queue = self._queues[lane]
        first = queue[0] == attempt
        queue.remove(attempt)
        if not queue:
            del self._queues[lane]
            return None
        return queue[0] if first else None
