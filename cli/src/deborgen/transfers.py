"""Several uploads or downloads at once, all of which stop soon when one fails or the person has had enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 4


class Stopped(Exception):
    """The other transfers were given up; this one ends, too."""


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
