"""A pulse of something on the coordinator: tells, at once, that it may have changed.

It carries no state. Whoever waits looks again for itself, so nothing is lost when a beat is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from deborgen import stream
from deborgen.connection import Connection
from deborgen.errors import DeborgenError
from deborgen_shared.queries import EventsQuery

#: Look again after this long even when nothing was heard.
AT_LEAST_EVERY = 5.0

#: Never look more often than this, however much happens.
AT_MOST_EVERY = 0.1


class Pulse:
    """Listens on a thread of its own while the block runs."""

    def __init__(
        self,
        connection: Connection,
        query: EventsQuery,
        on_trouble: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._connection = connection
        self._query = query
        self._on_trouble = on_trouble
        self._changed = threading.Event()
        self._line = stream.Line()
        self._looked = 0.0

    def __enter__(self) -> Pulse:
        threading.Thread(target=self._listen, daemon=True, name="deborgen-pulse").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.hang_up()

    def wait(self, seconds: float | None = None, at_most_every: float = AT_MOST_EVERY) -> bool:
        """Wait for a beat, at most `seconds`; True when there was one."""
        longest = AT_LEAST_EVERY if seconds is None else min(seconds, AT_LEAST_EVERY)
        early = at_most_every - (time.monotonic() - self._looked)
        if early > 0:
            time.sleep(min(early, longest))
        beat = self._changed.wait(max(0.0, longest - max(early, 0)))
        self._changed.clear()
        self._looked = time.monotonic()
        return beat

    def _listen(self) -> None:
        try:
            after = stream.newest(self._connection)
            # Whoever looked before this moment may have missed something: look once more.
            self._changed.set()
            for _ in stream.events(
                self._connection,
                self._query,
                after,
                stop=self._line.stopped,
                on_open=self._line.opened,
                on_trouble=self._on_trouble,
            ):
                self._changed.set()
                if self._line.stopped():
                    return
        except DeborgenError:
            # What is wrong, whoever waits will find out by looking.
            self._changed.set()
