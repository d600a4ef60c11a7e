"""Limits that nobody can use up alone: one person gets at most a quarter."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

#: One person may use at most the total divided by this number: a quarter.
PERSONS_PART = 4


def quarter(most: int) -> int:
    return max(1, most // PERSONS_PART)


class Share:
    """An amount that many people use at once: at most `most` in total, and at most a quarter of it per person.

    An amount that is larger than a quarter can be taken by a person who has taken nothing.
    """

    def __init__(self, most: int) -> None:
        self.most, self.each = most, quarter(most)
        self._taken: Counter[Hashable] = Counter()
        self.total = 0
        self._lock = threading.Lock()

    def take(self, person: Hashable, amount: int = 1) -> bool:
        """Take the amount for this person; False if it is not available."""
        with self._lock:
            own = self._taken[person]
            if self.total + amount > self.most or (own and own + amount > self.each):
                return False
            self._taken[person] = own + amount
            self.total += amount
            return True

    def give_back(self, person: Hashable, amount: int = 1) -> None:
        with self._lock:
            self.total -= amount
            self._taken[person] -= amount
            if not self._taken[person]:
                del self._taken[person]


class Turns(Generic[T]):
    """Who may start next: at most `most` at once, of one person at most `each`; waiting people take turns.

    It is used by one thread.
    """

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each = most, each
        self._busy = 0
        self._started: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[T]] = {}

    def start(self, person: Hashable, item: T) -> bool:
        """Whether the item may start now. Otherwise it waits, and `end` returns it later."""
        if self._busy < self._most and self._started[person] < self._each:
            self._count(person)
            return True
        self._waiting.setdefault(person, deque()).append(item)
        return False

    def end(self, person: Hashable) -> list[T]:
        """Note that an item of this person has ended; return the items that may start now."""
        self._busy -= 1
        self._started[person] -= 1
        if not self._started[person]:
            del self._started[person]
        return list(iter(self._next, None)) if self._waiting else []

    def _next(self) -> T | None:
        if self._busy >= self._most:
            return None
        for person in self._waiting:
            if self._started[person] < self._each:
                waiting = self._waiting.pop(person)
                item = waiting.popleft()
                if waiting:
                    self._waiting[person] = waiting  # behind all others
                self._count(person)
                return item
        return None

    def _count(self, person: Hashable) -> None:
        self._busy += 1
        self._started[person] += 1
