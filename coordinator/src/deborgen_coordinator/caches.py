"""A cache that threads share. Even a read reorders a cache of cachetools, so each access takes a lock."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Generic, TypeVar

from cachetools import Cache

K = TypeVar("K")
V = TypeVar("V")


class SharedCache(Generic[K, V]):
    def __init__(self, cache: Cache[K, V]) -> None:
        self._cache = cache
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._cache.get(key)

    def pop(self, key: K) -> V | None:
        with self._lock:
            return self._cache.pop(key, None)

    def update(self, found: Mapping[K, V]) -> None:
        with self._lock:
            self._cache.update(found)
