"""A cache that threads share. Reading changes nothing in it, so only changes take a lock."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Generic, TypeVar

from cachetools import FIFOCache

K = TypeVar("K")
V = TypeVar("V")


class SharedCache(Generic[K, V]):
    """A cache of at most `most` entries: the oldest one makes room for a new one."""

    def __init__(self, most: int) -> None:
        self._cache: FIFOCache[K, V] = FIFOCache(most)
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        try:
            return self._cache[key]
        except KeyError:
            return None

    def pop(self, key: K) -> V | None:
        with self._lock:
            return self._cache.pop(key, None)

    def update(self, entries: Mapping[K, V]) -> None:
        if entries:
            with self._lock:
                self._cache.update(entries)
