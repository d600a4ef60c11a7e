"""The cleanup seals logs into blobs, and removes orphaned uploads, unreferenced blobs and the data of old runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ...storage import blobs, experiences, logs
from .. import direct_uploads, usage
from ..blobs import register
from ..context import Context
from ..images import drop_removed
from .retention import DAY, Retention, SmallSteps

log = logging.getLogger("deborgen.cleanup")

#: A log that stays incomplete is sealed as it is after this many seconds.
LATE_LOG_SECONDS = 3_600.0
#: Clean up blobs and apply the retention settings this often.
CLEANUP_SECONDS = 300.0
#: Handle at most this many logs, blobs or runs at once.
BATCH = 100
#: Read logs in pieces of at most this many bytes.
PIECE = 1 << 20
#: A log goes into an object store this many seconds after the end of its attempt.
CATCH_UP_SECONDS = 60.0
#: Put this many logs into an object store at once, because each waits for the network.
SEALERS = 8


class Cleaner:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        #: When it last cleaned up, and when it last read the whole database, on the steady clock.
        self._cleaned: float | None = None
        self._examined: float | None = None
        #: The last minute whose queue depth is stored.
        self._minute: int | None = None

    def run_once(self, stop: threading.Event | None = None) -> None:
        """Seal logs every time, clean up blobs and old runs now and then, and read the whole database once per day."""
        stop = stop or threading.Event()

        def repeat(handle_batch: Callable[[], int]) -> None:
            """Handle one batch after the other. A batch that is not full is the last."""
            while handle_batch() == BATCH and not stop.is_set():
                pass

        parts: list[Callable[[], object]] = [self._note_depth, lambda: repeat(lambda: self.seal_logs(stop))]
        steady = self._ctx.clock.steady()
        if self._cleaned is None or steady - self._cleaned >= CLEANUP_SECONDS:
            self._cleaned = steady
            parts += [
                lambda: self._ctx.blobs.remove_orphans(DAY),
                lambda: self.apply_retention(stop),
                lambda: self._ctx.store.write(partial(experiences.forget, before=self._ctx.clock.wall() - DAY)),
                lambda: drop_removed(self._ctx),
                lambda: self.collect_blobs(stop),
                lambda: repeat(lambda: usage.merge_old(self._ctx)),
            ]
            if (bucket := self._ctx.blobs.bucket) is not None:
                parts.append(lambda: repeat(lambda: direct_uploads.remove_old(self._ctx, bucket)))
        if self._examined is None or steady - self._examined >= DAY:
            self._examined = steady
            parts.append(self._ctx.store.examine)
        failures: list[Exception] = []
        for part in parts:  # on a full disk the first parts fail, and the later ones free space
            try:
                part()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def _note_depth(self) -> None:
        self._minute = usage.note_depth(self._ctx, self._minute)

    def seal_logs(self, stop: threading.Event | None = None) -> int:
        """Turn complete logs into blobs; return the number of logs."""
        ctx = self._ctx
        before = ctx.clock.wall() - LATE_LOG_SECONDS
        # Those who follow a log must not wait for an object store, so it stays here while they catch up.
        ended_before = None if ctx.blobs.bucket is None else ctx.clock.wall() - CATCH_UP_SECONDS
        ready = ctx.store.read(lambda reader: logs.ready_to_seal(reader, before, BATCH, ended_before))

        def seal(log: tuple[int, int, int]) -> int:
            return 0 if stop is not None and stop.is_set() else self._seal(*log)

        if ctx.blobs.bucket is None or not ready:
            return sum(map(seal, ready))
        with ThreadPoolExecutor(SEALERS) as pool:
            return sum(pool.map(seal, ready))

    def _seal(self, job: int, number: int, size: int) -> int:
        """Turn one log into a blob; 0 if it has changed meanwhile."""
        ctx = self._ctx
        digest, stored = ctx.blobs.store(self._log_bytes(job, number, size), partial(register, ctx))
        if stored != size:
            return 0
        return int(ctx.store.write(partial(logs.seal, job=job, number=number, size=size, digest=digest)))

    def _log_bytes(self, job: int, number: int, size: int) -> Iterator[bytes]:
        at = 0
        while at < size:
            limit = min(PIECE, size - at)
            piece = self._ctx.store.read(partial(logs.read, job=job, number=number, offset=at, limit=limit))
            if not piece:
                return
            at += len(piece)
            yield piece

    def collect_blobs(self, stop: threading.Event | None = None) -> int:
        """Remove blobs that nothing refers to, a day after they were last requested; return the number of blobs."""
        ctx, stop = self._ctx, stop or threading.Event()
        steps = SmallSteps(ctx.clock.steady, stop)
        before = ctx.clock.wall() - DAY
        removed, last = 0, ""
        while not steps.stopped:
            page = ctx.store.read(partial(blobs.unreferenced, before=before, after=last, most=BATCH))
            with steps.step():
                removed += sum(self._collect(digest, before) for digest in page)
            if len(page) < BATCH:
                break
            last = page[-1]
        if removed:
            log.info("removed %d unreferenced blobs", removed)
        return removed

    def _collect(self, digest: str, before: float) -> bool:
        with self._ctx.blobs.locked(digest):
            upload = self._ctx.store.write(partial(blobs.delete_row, digest=digest, before=before))
            if upload == "":
                self._ctx.blobs.delete(digest)
            return upload is not None

    def apply_retention(self, stop: threading.Event | None = None) -> int:
        """Remove the logs and artifacts of old runs, as the settings say, but not their history; return the number of
        runs."""
        return Retention(self._ctx, stop).apply()
