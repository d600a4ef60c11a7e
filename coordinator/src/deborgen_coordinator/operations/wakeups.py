"""Those who wait: claims for work, streams for events. A commit wakes them; a stop answers them all.

Events and logs are for everybody who waits for them. A job is for one: a new one wakes the claim that came last, the
surest to have somebody at its other end, and whoever has looked and left something calls the next. So one job among
many idle workers costs one look and not one for each of them, and what the first cannot take still reaches whoever can.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from msgspec.structs import replace

from deborgen_shared.messages import Claim, NextClaim

#: The signal that wakes one at a time, and how many are woken by each who has left something: so it spreads quickly.
JOBS = "jobs"
CALL = 2


class _Waiter:
    __slots__ = ("seen", "wake")

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self.wake = threading.Lock()
        self.wake.acquire()


class Question:
    """A claim that may wait. A finish that carries the same request id says what is free by then, or is answered."""

    def __init__(self, worker: str, claim: Claim) -> None:
        self.worker, self.claim = worker, claim
        self.answered = False
        self.waiter: _Waiter | None = None


class Wakeups:
    """Signals with a count each: look at the count, try, and wait until it has moved. So no wake-up is missed.

    At most `most` wait for work at the same time.
    """

    def __init__(self, most: int = 32) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._waiters: defaultdict[str, list[_Waiter]] = defaultdict(list)
        self._most = most
        self._waiting = 0
        self._questions: dict[tuple[str, str], Question] = {}
        self.closed = False

    def tell(self, signals: set[str]) -> None:
        with self._lock:
            for signal in signals:
                self._counts[signal] += 1
                self._wake(signal, 1 if signal == JOBS else None)

    def call_next(self) -> None:
        """Whoever was woken for jobs has left some: let the next ones look, if they have not looked since."""
        with self._lock:
            self._wake(JOBS, CALL)

    def _wake(self, signal: str, most: int | None) -> None:
        waiters, count = self._waiters[signal], self._counts[signal]
        for each in [each for each in reversed(waiters) if each.seen != count][:most]:
            waiters.remove(each)
            each.wake.release()

    def count(self, signal: str) -> int:
        with self._lock:
            return self._counts[signal]

    def wait(self, signal: str, seen: int, timeout: float, question: Question | None = None) -> bool:
        """Whether the signal came since its count was `seen`, within so many seconds. An answered question waits no
        longer."""
        with self._lock:
            if self.closed or self._counts[signal] != seen or (question is not None and question.answered):
                return self._counts[signal] != seen
            waiter = _Waiter(seen)
            self._waiters[signal].append(waiter)
            if question is not None:
                question.waiter = waiter
        waiter.wake.acquire(timeout=max(0.0, timeout))
        with self._lock:
            if waiter in self._waiters[signal]:
                self._waiters[signal].remove(waiter)
            return self._counts[signal] != seen

    def ask(self, worker: str, claim: Claim) -> Question:
        """A claim begins; `forget` must follow."""
        question = Question(worker, claim)
        with self._lock:
            self._questions[worker, claim.request_id] = question
        return question

    def forget(self, question: Question) -> None:
        key = question.worker, question.claim.request_id
        with self._lock:
            if self._questions.get(key) is question:
                del self._questions[key]

    def ask_more(self, worker: str, claim: NextClaim, *, answered: bool) -> None:
        """The same question came with a finish: the claim that waits asks for as much from now on, or is over."""
        with self._lock:
            question = self._questions.get((worker, claim.request_id))
            if question is None:
                return
            if answered:
                question.answered = True
                if question.waiter in self._waiters[JOBS]:
                    self._waiters[JOBS].remove(question.waiter)
                    question.waiter.wake.release()
            elif not claim.ahead:  # what is asked for ahead of need is for now or not at all
                question.claim = replace(question.claim, free=claim.free, max=claim.max)

    def enter(self) -> bool:
        """Take one of the places to wait for work; False when all are taken."""
        with self._lock:
            if self._waiting >= self._most or self.closed:
                return False
            self._waiting += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._waiting -= 1

    def close(self) -> None:
        """Answer everybody who waits, now and from now on."""
        with self._lock:
            self.closed = True
            for waiters in self._waiters.values():
                for each in waiters:
                    each.wake.release()
                waiters.clear()
