"""The background sweep: it moves the lease clock, ends what has run out, and tidies up. It never acts twice.

Of several coordinators on one PostgreSQL database one sweeps; another takes over when that one has stood still for
a while.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from deborgen_shared.states import Outcome

from ...leases import lease_end, sweep_interval, turn
from ...storage import attempts, jobs, lease_clock, workers
from ...storage.transactions import Tx
from ..attempts.outcomes import count_failures, give_up, judge
from ..context import COORDINATOR, Context
from ..lookup import find_worker
from ..work import About, Ending, Work
from .tidy import Tidier

log = logging.getLogger("deborgen.sweep")

#: So many attempts are ended in one transaction, so that a sweep never holds the writer for long.
BATCH = 200
#: Another process's sweep that stood still for so many intervals, and seconds, is taken over.
PATIENCE_INTERVALS = 10
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Swept:
    """What one turn did."""

    leading: bool
    expired: int = 0


class Sweeper:
    """`turn` does one turn, for tests and simulations; `start` does it for ever on a thread."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._name = secrets.token_hex(8)
        self._interval = sweep_interval(ctx.settings.lease_seconds)
        self._last: float | None = None
        self._watched: tuple[str, int] = ("", -1)
        self._watched_since = 0.0
        self._stop = threading.Event()
        self._leading = False
        self._tidier = Tidier(ctx)
        # Two threads: however long there is to tidy up, the lease clock goes on.
        self._threads = [
            threading.Thread(target=self._loop, args=(self._sweep,), name="sweeper", daemon=True),
            threading.Thread(target=self._loop, args=(self._tidy,), name="tidier", daemon=True),
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
                log.error("the sweep failed, it is tried again: %s: %s", type(error).__name__, error)
            self._stop.wait(self._interval)

    def _sweep(self) -> None:
        self._leading = self.turn().leading

    def _tidy(self) -> None:
        if self._leading:
            self._tidier.turn(self._stop)

    def turn(self) -> Swept:
        """Move the clock, and end what has run out, batch by batch."""
        moved = self._ctx.store.write(self._move_clock)
        if moved is None:
            return Swept(leading=False)
        # Leases granted while the move was on its way to the disk were counted on the old clock. If that took long, all
        # leases begin again with the next turn.
        self._last = moved if self._now() - moved <= self._interval else None
        expired = 0
        while True:
            ended = self._ctx.work(COORDINATOR, self._end_batch)
            expired += ended
            if ended < BATCH:
                break
        self._ctx.metrics.lease_expired.inc(expired)
        return Swept(True, expired)

    def _now(self) -> float:
        """The time by which leases are counted: on the steady clock, which no step of the wall clock touches."""
        return self._ctx.clock.steady()

    def _move_clock(self, tx: Tx) -> float | None:
        """Move the lease clock up to now, and return the time it was moved at; None if another process sweeps."""
        value, sweeper, turns = lease_clock.lock(tx)
        steady = self._now()
        if sweeper != self._name:
            if not self._may_take_over(tx.connection.shared, sweeper, turns, steady):
                return None
            self._last = None
        moved = turn(None if self._last is None else steady - self._last, self._ctx.settings.lease_seconds)
        value += moved.advance
        lease_clock.move(tx, value, self._name)
        if moved.regrant:
            renewed = attempts.extend_all(tx, lease_end(value, self._ctx.settings.lease_seconds))
            workers.mark_all_seen(tx, value)
            if renewed:
                log.info("%d live leases get one full period: nobody could have renewed them", renewed)
        return steady

    def _may_take_over(self, shared: bool, sweeper: str, turns: int, steady: float) -> bool:
        if not shared or not sweeper:
            return True  # the data directory is locked by this process, or nobody sweeps
        if self._watched != (sweeper, turns):
            self._watched, self._watched_since = (sweeper, turns), steady
        return steady - self._watched_since > max(PATIENCE_SECONDS, PATIENCE_INTERVALS * self._interval)

    def _end_batch(self, work: Work) -> int:
        """End the leases that ran out and the attempts far past their limit, wake what has waited long enough."""
        tx, clock, settings = work.tx, work.clock, work.ctx.settings
        expired = attempts.with_expired_lease(tx, clock, BATCH)
        lost = give_up(work, expired, "the lease expired", expired=True)
        for name in sorted({held.worker for held in lost}):
            count_failures(work, find_worker(tx, name), [Outcome.LOST])
        for held in attempts.past_time_limit(tx, clock, BATCH):
            verdict = judge(work, held, Outcome.TIMEOUT, "it ran past its time limit, and its worker did not end it")
            work.conclude(held, verdict, Ending(Outcome.TIMEOUT, verdict.reason, clock - held.granted_clock))
        if jobs.end_backoffs(tx, clock):
            work.wake("jobs")
        silence = max(settings.lease_seconds, 3 * settings.heartbeat_seconds)
        for name in workers.mark_silent_offline(tx, clock - silence):
            work.record("worker.offline", About(worker=name))
        return len(expired)
