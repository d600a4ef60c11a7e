"""Slow work on a few threads. For each attempt or folder it is done in order, one piece at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Work = Callable[[], None]


class Strands:
    """A strand is a queue of work that is done one piece at a time. Different strands run in parallel.

    `submit` must run the given function soon, in any thread. Work must not raise.
    """

    def __init__(self, submit: Callable[[Work], object]) -> None:
        self._submit = submit
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Work]] = {}

    @property
    def busy(self) -> bool:
        """Whether any work waits or is being done."""
        return bool(self._waiting)

    def run(self, strand: str, work: Work) -> None:
        """Do this work after all earlier work of the same strand."""
        with self._lock:
            if strand in self._waiting:
                self._waiting[strand].append(work)
                return
            self._waiting[strand] = deque([work])
        self._submit(lambda: self._drain(strand))

    def _drain(self, strand: str) -> None:
        while True:
            with self._lock:
                if not self._waiting[strand]:
                    del self._waiting[strand]
                    return
                work = self._waiting[strand].popleft()
            work()
