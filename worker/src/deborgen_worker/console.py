"""The worker's output for people: on a terminal a status line that is kept up to date, elsewhere lines with a time."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

#: Away from a terminal, repeat an unchanged status after this many seconds.
REPEAT_SECONDS = 300.0


class Console:
    """`say` prints a line that stays. `show` sets the status line.

    Away from a terminal the status is printed when it changes, and otherwise every five minutes.
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
            self._print(f"{time.strftime('%H:%M:%S')} {printable(text)}\n" + (self._status if self.terminal else ""))

    def show(self, text: str) -> None:
        text = printable(text)
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
            self._stream.flush()

    def _wipe(self) -> None:
        if self.terminal and self._status:
            self._stream.write("\r\x1b[K")

    def _print(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads the output any more, but the work goes on


def printable(text: str) -> str:
    """The text without control characters that a terminal would obey: job names come from other people."""
    return "".join(each if each.isprintable() else "?" for each in text)
