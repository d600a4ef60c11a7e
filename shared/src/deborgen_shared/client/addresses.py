"""The addresses of a pool's coordinators, and which of them to ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from urllib.parse import urljoin, urlsplit

#: While another coordinator than the first is asked, the first is tried again after this many seconds, and then after
#: twice as many each time, up to the second number.
RETURN_SECONDS, LONGEST_RETURN_SECONDS = 15.0, 240.0


def split_addresses(text: str) -> list[str]:
    """The addresses in `URL,URL`. Raises ValueError for one that is not an address."""
    found = [each.strip().rstrip("/") for each in text.split(",")]
    for url in found:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a coordinator: write http://HOST:PORT or https://HOST")
    return found


class Addresses:
    """All coordinators of a pool do the same, so any of them will do. The first one is preferred. Thread-safe."""

    def __init__(self, text: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.all = split_addresses(text)
        self._clock = clock
        self._lock = threading.Lock()
        self._current = 0
        self._return_at, self._pause = 0.0, RETURN_SECONDS

    def in_turn(self) -> list[str]:
        """The addresses in the order in which to try them now."""
        with self._lock:
            start = self._current
            turns = [*range(start, len(self.all)), *range(start)]
            if start and self._clock() >= self._return_at:
                self._put_off()
                turns = [0, *(turn for turn in turns if turn)]
            return [self.all[turn] for turn in turns]

    def answered(self, url: str) -> None:
        with self._lock:
            self._current = self.all.index(url)
            if not self._current:
                self._pause = RETURN_SECONDS

    def failed(self, url: str) -> None:
        """Ask the next one from now on, if this is the one that is asked."""
        with self._lock:
            if self.all[self._current] == url:
                self._current = (self._current + 1) % len(self.all)
                if url == self.all[0]:
                    self._put_off()

    def _put_off(self) -> None:
        self._return_at = self._clock() + self._pause
        self._pause = min(2 * self._pause, LONGEST_RETURN_SECONDS)

    def include(self, url: str) -> bool:
        """Whether the address belongs to one of the coordinators."""
        return any(urlsplit(urljoin(own + "/", url))[:2] == urlsplit(own)[:2] for own in self.all)
