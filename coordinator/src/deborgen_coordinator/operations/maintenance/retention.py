"""Retention removes the logs, artifacts and program events of old runs. What ran where, when and for whom stays.

It works in small transactions with pauses between them, so that it never holds up a claim, however much there is to do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ... import ids
from ...storage import images, retention
from ...storage.database import DatabaseConnection
from ..context import Context

log = logging.getLogger("deborgen.cleanup")

DAY = 86_400.0
#: Remove the data of at most this many jobs in one transaction.
SLICE = 200
#: Look for this many runs at once.
PAGE = 100
#: After each transaction, pause this many times as long as it took, but at most this many seconds.
PAUSE_FACTOR, LONGEST_PAUSE_SECONDS = 4.0, 1.0


class SmallSteps:
    """Leaves most of the writer's time to others."""

    def __init__(self, steady: Callable[[], float], stop: threading.Event) -> None:
        self._steady, self._stop = steady, stop

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    @contextmanager
    def step(self) -> Iterator[None]:
        """One transaction, and the pause after it."""
        began = self._steady()
        yield
        self._stop.wait(min(LONGEST_PAUSE_SECONDS, PAUSE_FACTOR * (self._steady() - began)))


class Retention:
    """Applies the three retention settings, the oldest runs first."""

    def __init__(self, ctx: Context, stop: threading.Event | None = None) -> None:
        self._ctx = ctx
        self._steps = SmallSteps(ctx.clock.steady, stop or threading.Event())
        self._now = ctx.clock.wall()

    def apply(self) -> int:
        """Prune what the settings say; return the number of runs."""
        settings, pruned = self._ctx.settings, 0
        if settings.retention_days:
            for run in self._runs(self._now - settings.retention_days * DAY):
                pruned += self._prune(run)
        if most := settings.retention_bytes_per_submitter:
            for submitter, size in self._ctx.store.read(retention.size_by_submitter).items():
                pruned += self._free(size - most, submitter)[0]
        if most := settings.retention_bytes:
            # Blobs that several runs share are counted once, so a run may free less than its size.
            while (excess := self._ctx.store.read(retention.referenced_size) - most) > 0:
                count, _ = self._free(excess)
                pruned += count
                if not count:
                    break
        if pruned:
            log.info("removed the logs and artifacts of %d old runs", pruned)
        return pruned

    def _free(self, excess: int, submitter: int | None = None) -> tuple[int, int]:
        """Prune the oldest runs until they had this many bytes; return how many runs and bytes that were."""
        count = freed = 0
        if excess > 0:
            for run in self._runs(self._now, submitter):
                freed += self._ctx.store.read(partial(_size, run=run))
                count += self._prune(run)
                if freed >= excess:
                    break
        return count, freed

    def _runs(self, before: float, submitter: int | None = None) -> Iterator[int]:
        """Runs to prune, oldest first. The caller prunes each before it asks for the next."""
        while not self._steps.stopped:
            page = self._ctx.store.read(partial(retention.prunable_runs, before=before, most=PAGE, submitter=submitter))
            yield from page
            if len(page) < PAGE:
                return

    def _prune(self, run: int) -> bool:
        """Prune one run, a slice at a time; False if it was stopped before the end, which the next round repeats."""
        store = self._ctx.store
        first, last = ids.span(run)
        while first <= last:
            if self._steps.stopped:
                return False
            end = store.read(partial(retention.end_of_slice, first=first, last=last, most=SLICE))
            with self._steps.step():
                store.write(partial(retention.prune_jobs, first=first, last=end))
            first = end + 1
        store.write(partial(images.remove_replaced, first=ids.span(run)[0], last=last))
        store.write(partial(retention.mark_pruned, run=run, now=self._now))
        return True


def _size(reader: DatabaseConnection, run: int) -> int:
    first, last = ids.span(run)
    return retention.size_of_jobs(reader, first, last)
