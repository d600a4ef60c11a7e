"""Whether the coordinator can be reached. Each caller backs off with jitter, and each outage is printed once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deborgen_shared.client.backoff import BackOff

if TYPE_CHECKING:
    from deborgen_worker.coordinator import CoordinatorClient

FIRST_WAIT_SECONDS = 0.25
MAX_WAIT_SECONDS = 60.0


@dataclass
class Contact:
    """All callers share this. `on_back` is called when the coordinator answers again, so that callers stop waiting.

    `last` is when a call was last answered. `lost_since` is when the current outage was noticed.
    """

    clock: Callable[[], float]
    say: Callable[[str], None]
    on_back: Callable[[], None] = lambda: None
    random: random.Random = field(default_factory=random.Random)
    last: float | None = None
    lost_since: float | None = None
    max_wait_seconds: float = MAX_WAIT_SECONDS
    #: A back-off for each caller whose last call was not answered.
    _back_offs: dict[str, BackOff] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ok(self, caller: str) -> None:
        """Note that a call was answered."""
        self.last = self.clock()
        if not self._back_offs and self.lost_since is None:
            return
        with self._lock:
            self._back_offs.pop(caller, None)
            gone, self.lost_since = self.lost_since, None
        if gone is not None:
            self.say(f"the coordinator answers again, after {self.last - gone:.0f} s")
            self.on_back()

    def failed(self, caller: str, error: Exception, most: float | None = None) -> float:
        """Note that a call was not answered. Returns the seconds until the retry, at most `most`.

        An outage is printed when a caller fails for the second time in a row.
        """
        longest = min(most or self.max_wait_seconds, self.max_wait_seconds)
        with self._lock:
            back_off = self._back_offs.setdefault(caller, BackOff(FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS, self.random))
            pause = back_off.after_failure(getattr(error, "retry_after", None), longest)
            news = self.lost_since is None and back_off.failures >= 2
            if news:
                self.lost_since = self.clock()
        if news:
            self.say(f"cannot reach the coordinator, retrying: {error}; running jobs continue and results are kept")
        return pause


@dataclass(frozen=True)
class Link:
    """The link to the coordinator in one session of this worker."""

    coordinator: CoordinatorClient
    contact: Contact
    session: str
    say: Callable[[str], None]
