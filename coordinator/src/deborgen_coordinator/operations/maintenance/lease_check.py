"""The lease check: a background loop that moves the lease clock and ends attempts whose lease has expired.

If several coordinators share a PostgreSQL database, one of them does this, and another takes over if it stops.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from deborgen_shared.states import Outcome

from ...leases import clock_move, lease_check_interval, lease_end
from ...storage import attempts, jobs, lease_clock, workers
from ...storage.transactions import Tx
from ..attempts.failures import MachineOutcome, count_failures
from ..attempts.outcomes import give_up, judge
from ..context import COORDINATOR, Context
from ..lookup import find_worker
from ..work import About, AttemptEnding, Work
from .cleanup import Cleaner

log = logging.getLogger("deborgen.leases")

#: At most this many attempts are ended per transaction, so that a check never blocks the writer for long.
BATCH = 200
#: Take over from another process once it has made no check for this many intervals, and for this many seconds.
PATIENCE_INTERVALS = 10
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class LeaseCheck:
    """What one check did. `leading` says whether this process, and no other, checks the leases."""

    leading: bool
    expired: int = 0


class LeaseChecker:
    """`start` checks leases and cleans up on two threads until `stop`. `run_once` makes one lease check, for tests and
    simulations."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._name = secrets.token_hex(8)
        self._interval = lease_check_interval(ctx.settings.lease_seconds)
        self._last: float | None = None
        #: How many checks in a row found that a heartbeat had waited for too long.
        self._late_checks = 0
        #: Another process that moves the clock, with its number of moves, and since when that number is the same.
        self._watched: tuple[str, int] = ("", -1)
        self._watched_since = 0.0
        self._stop = threading.Event()
        self._leading = False
        self._cleaner = Cleaner(ctx)
        # The cleanup has its own thread, so that the lease clock keeps moving even if the cleanup takes long.
        self._threads = [
            threading.Thread(target=self._loop, args=(self._check,), name="lease-check", daemon=True),
            threading.Thread(target=self._loop, args=(self._clean,), name="cleanup", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _loop(self, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                work()
            except Exception as error:
                log.error("%s failed, retrying: %s: %s", threading.current_thread().name, type(error).__name__, error)
            self._stop.wait(self._interval)

    def _check(self) -> None:
        self._leading = self.run_once().leading

    def _clean(self) -> None:
        if self._leading:
            self._cleaner.run_once(self._stop)

    def run_once(self) -> LeaseCheck:
        """Move the lease clock, and end expired attempts, batch by batch."""
        self._late_checks = self._late_checks + 1 if self._ctx.renewal_waits.were_late() else 0
        moved = self._ctx.store.write(self._move_clock)
        if moved is None:
            return LeaseCheck(leading=False)
        # The end of a lease that was granted during this commit was computed from the old clock, so it comes too early.
        # If the commit took longer than an interval, the next check therefore extends all leases by one full period.
        self._last = moved if self._now() - moved <= self._interval else None
        expired = 0
        while True:
            ended = self._ctx.work(COORDINATOR, self._end_batch)
            expired += ended
            if ended < BATCH:
                break
        self._ctx.metrics.lease_expired.inc(expired)
        return LeaseCheck(True, expired)

    def _now(self) -> float:
        """The time on the steady clock, which ignores changes of the wall clock."""
        return self._ctx.clock.steady()

    def _move_clock(self, tx: Tx) -> float | None:
        """Move the lease clock forward, and return the steady time of the move; None if another process does it."""
        value, mover, moves = lease_clock.lock(tx)
        steady = self._now()
        if mover != self._name:
            if not self._may_take_over(tx.connection.shared, mover, moves, steady):
                return None
            self._last = None
        elapsed = None if self._last is None else steady - self._last
        moved = clock_move(elapsed, self._ctx.settings.lease_seconds, self._late_checks)
        value += moved.advance
        lease_clock.move(tx, value, self._name)
        if moved.regrant:
            renewed = attempts.extend_all(tx, lease_end(value, self._ctx.settings.lease_seconds))
            workers.mark_all_seen(tx, value)
            if renewed:
                log.info("extended %d live leases by one full period: nobody could renew them", renewed)
        return steady

    def _may_take_over(self, shared: bool, mover: str, moves: int, steady: float) -> bool:
        if not shared or not mover:
            return True  # this process has locked the data directory, or no process moves the clock yet
        if self._watched != (mover, moves):
            self._watched, self._watched_since = (mover, moves), steady
        return steady - self._watched_since > max(PATIENCE_SECONDS, PATIENCE_INTERVALS * self._interval)

    def _end_batch(self, work: Work) -> int:
        """End attempts whose lease has expired or that are far past their time limit; return how many leases expired.

        Also make jobs ready whose backoff has ended, and mark workers offline that no longer send heartbeats.
        """
        tx, clock, settings = work.tx, work.clock, work.ctx.settings
        expired = attempts.with_expired_lease(tx, clock, BATCH)
        lost = give_up(work, expired, "the lease expired", expired=True)
        for name, held in sorted({held.worker: held for held in reversed(lost)}.items()):
            count_failures(work, find_worker(tx, name), [MachineOutcome(held, Outcome.LOST)])
        for held in attempts.past_time_limit(tx, clock, BATCH):
            verdict = judge(work, held, Outcome.TIMEOUT, "it exceeded its time limit, and its worker did not end it")
            work.conclude(held, verdict, AttemptEnding(Outcome.TIMEOUT, verdict.reason, clock - held.granted_clock))
        if jobs.end_backoffs(tx, clock):
            work.wake("jobs")
        silence = max(settings.lease_seconds, 3 * settings.heartbeat_seconds)
        for name in workers.mark_silent_offline(tx, clock - silence):
            work.record("worker.offline", About(worker=name))
            work.wake("jobs")  # jobs that preferred this worker may go to another one now
        return len(expired)
