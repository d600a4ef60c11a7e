"""Slow work on a few threads: what belongs to the same attempt is done in its order, one piece at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Work = Callable[[], None]


class Strands:
    """`submit` runs a function soon, in some thread; a piece of work must not raise."""

    def __init__(self, submit: Callable[[Work], object]) -> None:
        self._submit = submit
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Work]] = {}

    def run(self, strand: str, work: Work) -> None:
        """Do this after all earlier work of the same strand."""
        with self._lock:
            if strand in self._waiting:
                self._waiting[strand].append(work)
                return
            self._waiting[strand] = deque([work])
        self._submit(lambda: self._work_off(strand))

    def _work_off(self, strand: str) -> None:
        while True:
            with self._lock:
                if not self._waiting[strand]:
                    del self._waiting[strand]
                    return
                work = self._waiting[strand].popleft()
            work()
