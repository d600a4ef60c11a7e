"""The cleanup seals logs into blobs, and removes orphaned uploads, unreferenced blobs and the data of old runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial

from ... import ids
from ...storage import blobs, experiences, images, logs
from .. import direct_uploads, usage
from ..blobs import register
from ..context import Context
from ..images import drop_removed

log = logging.getLogger("deborgen.cleanup")

DAY = 86_400.0
#: A log that stays incomplete is sealed as it is after this many seconds.
LATE_LOG_SECONDS = 3_600.0
#: Clean up blobs and apply the retention settings this often.
CLEANUP_SECONDS = 300.0
#: Handle at most this many logs, blobs or runs at once.
BATCH = 100
#: Read logs in pieces of at most this many bytes.
PIECE = 1 << 20


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
                self.apply_retention,
                lambda: self._ctx.store.write(partial(experiences.forget, before=self._ctx.clock.wall() - DAY)),
                lambda: drop_removed(self._ctx),
                lambda: repeat(self.collect_blobs),
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
        sealed = 0
        for job, number, size in ctx.store.read(lambda reader: logs.ready_to_seal(reader, before, BATCH)):
            if stop is not None and stop.is_set():
                break
            digest, stored = ctx.blobs.store(self._log_bytes(job, number, size), partial(register, ctx))
            if stored == size:
                sealed += ctx.store.write(partial(logs.seal, job=job, number=number, size=size, digest=digest))
        return sealed

    def _log_bytes(self, job: int, number: int, size: int) -> Iterator[bytes]:
        at = 0
        while at < size:
            limit = min(PIECE, size - at)
            piece = self._ctx.store.read(partial(logs.read, job=job, number=number, offset=at, limit=limit))
            if not piece:
                return
            at += len(piece)
            yield piece

    def collect_blobs(self) -> int:
        """Remove blobs that nothing refers to, a day after they were last requested; return the number of blobs."""
        ctx = self._ctx
        before = ctx.clock.wall() - DAY
        removed = 0
        for digest in ctx.store.read(lambda reader: blobs.unreferenced(reader, before, BATCH)):
            with ctx.blobs.locked(digest):
                if (upload := ctx.store.write(partial(blobs.delete_row, digest=digest, before=before))) is not None:
                    if not upload:
                        ctx.blobs.delete(digest)
                    removed += 1
        if removed:
            log.info("removed %d unreferenced blobs", removed)
        return removed

    def apply_retention(self) -> int:
        """Remove the logs and artifacts of old runs, as the settings say, but not their history; return the number of
        runs."""
        ctx, now = self._ctx, self._ctx.clock.wall()
        pruned = 0
        if ctx.settings.retention_days:
            before = now - ctx.settings.retention_days * DAY
            while found := self._prune(before, now, most=BATCH):
                pruned += found
        if most := ctx.settings.retention_bytes:
            while ctx.store.read(blobs.referenced_size) > most and self._prune(now, now, most=1):
                pruned += 1
        if pruned:
            log.info("removed the logs and artifacts of %d old runs", pruned)
        return pruned

    def _prune(self, before: float, now: float, most: int) -> int:
        found = self._ctx.store.read(lambda reader: blobs.prunable_runs(reader, before, most))
        for run in found:
            first, last = ids.span(run)
            self._ctx.store.write(partial(blobs.prune_run, run=run, first=first, last=last, now=now))
            self._ctx.store.write(partial(images.remove_replaced, first=first, last=last))
        return len(found)
