"""What a person sees: one line that is kept up to date on a terminal, plain lines with a time elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

REPEAT_SECONDS = 300.0


class Console:
    """`say` prints a line that stays. `show` sets the line that changes; elsewhere than on a terminal it is printed
    when what it says changes, and otherwise every five minutes."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self._shown = ""
        self._told = ""
        self._told_at = 0.0
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        with self._lock:
            self._wipe()
            self._print(f"{time.strftime('%H:%M:%S')} {printable(text)}\n" + (self._shown if self.terminal else ""))

    def show(self, text: str) -> None:
        text = printable(text)
        with self._lock:
            if self.terminal:
                self._wipe()
                self._shown = text[:200]
                self._print(self._shown)
                return
            gist = text.rpartition(";")[0]
            now = time.monotonic()
            if gist != self._told or now - self._told_at > REPEAT_SECONDS:
                self._told, self._told_at = gist, now
                self._print(f"{time.strftime('%H:%M:%S')} {text}\n")

    def end(self) -> None:
        """Leave the terminal clean."""
        with self._lock:
            self._wipe()
            self._shown = ""
            self._stream.flush()

    def _wipe(self) -> None:
        if self.terminal and self._shown:
            self._stream.write("\r\x1b[K")

    def _print(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody listens any more; the work goes on


def printable(text: str) -> str:
    """Without anything that a terminal would obey: job names come from other people."""
    return "".join(each if each.isprintable() else "?" for each in text)
