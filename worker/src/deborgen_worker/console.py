"""The worker's output for people: on a terminal, with a status line that is kept up to date; elsewhere, plain lines."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

from deborgen_shared.terminal import inert

#: If the output is not a terminal, repeat an unchanged status after this many seconds.
REPEAT_SECONDS = 300.0


class Console:
    """`say` prints a line that stays. `show` sets the status line.

    If the output is not a terminal, the status is printed when it changes, and otherwise every five minutes.
    """

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self._status = ""
        self._printed = ""
        self._printed_at = 0.0
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        with self._lock:
            self._wipe()
            self._print(f"{time.strftime('%H:%M:%S')} {inert(text)}\n" + (self._status if self.terminal else ""))

    def show(self, text: str) -> None:
        text = inert(text)
        with self._lock:
            if self.terminal:
                self._wipe()
                self._status = text[:200]
                self._print(self._status)
                return
            gist = text.rpartition(";")[0]
            now = time.monotonic()
            if gist != self._printed or now - self._printed_at > REPEAT_SECONDS:
                self._printed, self._printed_at = gist, now
                self._print(f"{time.strftime('%H:%M:%S')} {text}\n")

    def end(self) -> None:
        """Leave the terminal clean."""
        with self._lock:
            self._wipe()
            self._status = ""

    def _wipe(self) -> None:
        if self.terminal and self._status:
            self._print("\r\x1b[K")

    def _print(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads the output any more, as after the terminal was closed, but the worker continues
