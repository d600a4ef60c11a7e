"""Several uploads or downloads at once, all of which stop soon when one fails or the person has had enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from deborgen_shared.client.backoff import BackOff

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 4
#: A transfer is given up after this long without a byte.
PATIENCE_SECONDS = 120.0


class Stopped(Exception):
    """The other transfers were given up; this one ends, too."""


class Tries:
    """Whether a transfer that broke off is tried again: for as long as there is some progress now and then."""

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        self._patience = patience
        self._back_off = BackOff(first=0.2, most=5.0)
        self._deadline = time.monotonic() + patience

    def again(self, progress: bool, wanted: float | None = None) -> bool:
        """Pause, and then True; or False when the patience has ended. `wanted` are seconds that were asked for."""
        if progress:
            self._back_off.reset()
            self._deadline = time.monotonic() + self._patience
        pause = self._back_off.after_failure(wanted)
        if time.monotonic() + pause > self._deadline:
            return False
        time.sleep(pause)
        return True


def all_at_once(
    items: Iterable[T], transfer: Callable[[T, Callable[[int], None]], R], seen: Callable[[int], None]
) -> list[R]:
    """What `transfer` makes of each item, in order. It must tell of every piece; there it is stopped, if need be."""
    stop = threading.Event()

    def told(count: int) -> None:
        if stop.is_set():
            raise Stopped
        seen(count)

    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        tasks = [pool.submit(transfer, item, told) for item in items]
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            for task in done:
                task.result()
            return [task.result() for task in tasks]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
