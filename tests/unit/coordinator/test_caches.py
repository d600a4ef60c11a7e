"""A cache that threads share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cachetools import LRUCache, TTLCache

from deborgen_coordinator.caches import SharedCache
from support.clock import FakeClock


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Switch threads as often as possible."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_do_not_disturb_each_other() -> None:
    """Seen to fail without the lock: one thread evicts an entry that another one is about to read."""
    cache: SharedCache[int, int] = SharedCache(LRUCache(3))

    def use(start: int) -> None:
        for number in range(start, start + 2000):
            cache.update({number % 7: number % 7})
            assert cache.get(number % 5) in (None, number % 5)
            cache.pop(number % 3)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(use, range(8))) == [None] * 8


def test_the_most_recently_used_entries_are_kept() -> None:
    cache: SharedCache[str, int] = SharedCache(LRUCache(2))
    cache.update({"a": 1, "b": 2})
    assert cache.get("a") == 1
    cache.update({"c": 3})
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_expired_entries_are_removed() -> None:
    clock = FakeClock()
    cache: SharedCache[str, int] = SharedCache(TTLCache(2, 1.0, clock.steady))
    cache.update({"a": 1})
    clock.step_wall(3600)
    assert cache.get("a") == 1, "nobody who sets the clock changes that"
    clock.pass_by(1.0)
    assert cache.get("a") is None
    assert cache.pop("a") is None
