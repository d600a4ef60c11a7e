"""A cache that threads share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from deborgen_coordinator.caches import SharedCache


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
    cache: SharedCache[int, int] = SharedCache(3)

    def use(start: int) -> None:
        for number in range(start, start + 2000):
            cache.update({number % 7: number % 7})
            assert cache.get(number % 5) in (None, number % 5)
            cache.pop(number % 3)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(use, range(8))) == [None] * 8


def test_the_newest_entries_are_kept() -> None:
    cache: SharedCache[str, int] = SharedCache(2)
    cache.update({"a": 1, "b": 2})
    cache.update({"a": 3})
    cache.update({"c": 4})
    assert [cache.get(key) for key in "abc"] == [3, None, 4]
