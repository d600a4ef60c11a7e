"""Waiting requests: claims wait for jobs, streams wait for events. A commit wakes them, and so does a stop.

New events and log bytes wake all streams that wait for them. A new job wakes only one claim: the newest one, whose
worker is the most likely to be still connected. A claim that leaves jobs behind wakes the next claims, of workers that
fit the jobs that it saw. So one job costs one transaction however many workers are idle, and a job that only one of
thousands can run costs two.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice

from msgspec.structs import replace

from deborgen_shared.messages import Claim, NextClaim

from ..placement import MachineOffer, Needs, lacks
from ..shares import Share

#: The signal that wakes one claim at a time.
JOBS = "jobs"
#: A claim that leaves jobs behind wakes this many others, so that many jobs reach many workers quickly.
WAKE_AFTER_LEFTOVERS = 2
#: With jobs of more different needs than this, the workers are not compared with them.
MOST_NEEDS = 20


class _Waiter:
    """A request that waits for the release of its lock `wake`. `seen` is the signal's count when it last looked, and
    `offer` the machine of its worker, if it is a claim."""

    __slots__ = ("offer", "seen", "wake")

    def __init__(self, seen: int, offer: MachineOffer | None) -> None:
        self.seen, self.offer = seen, offer
        self.wake = threading.Lock()
        self.wake.acquire()


class OpenClaim:
    """A claim that may wait. A finish with the same request id updates its free resources, or answers it."""

    def __init__(self, worker: str, claim: Claim) -> None:
        self.worker, self.claim = worker, claim
        self.answered = False
        #: The worker's machine, once the claim has been looked at.
        self.offer: MachineOffer | None = None
        self.waiter: _Waiter | None = None


class Wakeups:
    """Each signal has a count. Read the count, look for work, then wait until the count has changed: so no signal is
    missed.

    At most `most` claims wait at the same time, and of one worker at most a quarter of that.
    """

    def __init__(self, most: int = 32) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._waiters: defaultdict[str, list[_Waiter]] = defaultdict(list)
        self._slots = Share(most)
        self._open_claims: dict[tuple[str, str], OpenClaim] = {}
        #: Set after each commit: each belongs to a thread that serves many waiting clients.
        self.bells: set[threading.Event] = set()
        self.closed = False

    def notify(self, signals: set[str]) -> None:
        with self._lock:
            for signal in signals:
                self._counts[signal] += 1
                self._wake(signal, 1 if signal == JOBS else None)
        for bell in tuple(self.bells):
            bell.set()

    def wake_next(self, needs: Sequence[Needs] = ()) -> None:
        """Wake the next claims because jobs are left, except claims that have looked since the last signal.

        With the `needs` of all jobs that are left, only claims of workers that fit some of them are woken.
        """
        with self._lock:
            self._wake(JOBS, WAKE_AFTER_LEFTOVERS, needs if len(needs) <= MOST_NEEDS else ())

    def _wake(self, signal: str, most: int | None, needs: Sequence[Needs] = ()) -> None:
        waiters, count = self._waiters[signal], self._counts[signal]
        due = (each for each in reversed(waiters) if each.seen != count and _fits(each, needs))
        for each in list(islice(due, most)):
            waiters.remove(each)
            each.wake.release()

    def count(self, signal: str) -> int:
        with self._lock:
            return self._counts[signal]

    def wait(self, signal: str, seen: int, timeout: float, open_claim: OpenClaim | None = None) -> bool:
        """Wait at most `timeout` seconds until the signal's count is no longer `seen`; return whether it has changed.
        An answered claim does not wait."""
        with self._lock:
            if self.closed or self._counts[signal] != seen or (open_claim is not None and open_claim.answered):
                return self._counts[signal] != seen
            waiter = _Waiter(seen, open_claim.offer if open_claim is not None else None)
            self._waiters[signal].append(waiter)
            if open_claim is not None:
                open_claim.waiter = waiter
        waiter.wake.acquire(timeout=max(0.0, timeout))
        with self._lock:
            if waiter in self._waiters[signal]:
                self._waiters[signal].remove(waiter)
            return self._counts[signal] != seen

    def open_claim(self, worker: str, claim: Claim) -> OpenClaim:
        """Register a claim that may wait; `close_claim` must follow."""
        open_claim = OpenClaim(worker, claim)
        with self._lock:
            self._open_claims[worker, claim.request_id] = open_claim
        return open_claim

    def close_claim(self, open_claim: OpenClaim) -> None:
        key = open_claim.worker, open_claim.claim.request_id
        with self._lock:
            if self._open_claims.get(key) is open_claim:
                del self._open_claims[key]

    def update_claim(self, worker: str, claim: NextClaim, *, answered: bool) -> None:
        """A finish carried the same request id. End the waiting claim if the finish answered it; otherwise update what
        it asks for."""
        with self._lock:
            open_claim = self._open_claims.get((worker, claim.request_id))
            if open_claim is None:
                return
            if answered:
                open_claim.answered = True
                if open_claim.waiter in self._waiters[JOBS]:
                    self._waiters[JOBS].remove(open_claim.waiter)
                    open_claim.waiter.wake.release()
            elif not claim.ahead:  # a request for jobs ahead of need never waits
                open_claim.claim = replace(open_claim.claim, free=claim.free, max=claim.max)

    def take_slot(self, worker: str) -> bool:
        """Take a slot for a waiting claim; False if none is free, or if this worker has as many as one may have."""
        return not self.closed and self._slots.take(worker)

    def release_slot(self, worker: str) -> None:
        self._slots.give_back(worker)

    def close(self) -> None:
        """Wake every waiting request, and let no request wait any more."""
        with self._lock:
            self.closed = True
            for waiters in self._waiters.values():
                for each in waiters:
                    each.wake.release()
                waiters.clear()


def _fits(waiter: _Waiter, needs: Sequence[Needs]) -> bool:
    return not needs or waiter.offer is None or any(not lacks(waiter.offer, each) for each in needs)
