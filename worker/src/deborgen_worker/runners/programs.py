"""A program that the supervisor watches over, with a clock of its own. Of the standard library alone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

NEVER = float("inf")


class Program:
    """A process with its group, which is our child, or a container, which is not: for that there are commands.

    Its clock stands still while its owner has it stopped. `end` says how we have ended it, as a part of the record of
    its end; nobody wants to hear of the end of one that is `unwanted`.
    """

    def __init__(self, ask: dict[str, Any]) -> None:
        self.since, self.limit = time.monotonic() - ask.get("used", 0.0), ask["timeout"]
        self.commands: dict[str, list[str]] = ask.get("verbs", {})
        self.pid, self.lane = 0, ask.get("lane", "")
        self.end: dict[str, Any] = {}
        self.unwanted = False
        self._stopped, self._stopped_at = 0.0, 0.0

    @property
    def frozen(self) -> bool:
        return self._stopped_at > 0

    @property
    def stopped(self) -> float:
        """For how many seconds it was stopped, all in all."""
        return self._stopped + (time.monotonic() - self._stopped_at if self.frozen else 0.0)

    @property
    def until(self) -> float:
        """The moment at which its time is used up."""
        return NEVER if self.frozen or self.end else self.since + self._stopped + self.limit

    def note(self, number: int) -> None:
        """It was sent this signal, by us or by the worker."""
        if number == signal.SIGSTOP and not self.frozen:
            self._stopped_at = time.monotonic()
        elif number == signal.SIGCONT:
            self._stopped, self._stopped_at = self.stopped, 0.0

    def send(self, number: int) -> None:
        self.note(number)
        with contextlib.suppress(OSError):  # it is over
            if self.pid:
                os.killpg(self.pid, number)
            elif argv := self.commands.get(signal.Signals(number).name):
                os.posix_spawnp(argv[0], argv, os.environ, setsid=True)


def find(program: str, path: str) -> str:
    """Where the program is, as a shell would look for it; an error if it is nowhere."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        found = f"{folder or '.'}/{program}"
        if os.access(found, os.X_OK):
            return found
    raise FileNotFoundError(program)
