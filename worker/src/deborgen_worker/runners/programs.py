"""A program that the supervisor watches. This module uses only the standard library."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from deborgen_worker.runners import users

NEVER = float("inf")


class Program:
    """A process, which is our child and has a group of its own, or a container, which is steered by commands.

    A process that starts containers is signalled, and its containers are steered by commands. A process may have a
    `user` of its own: then all processes of that user are signalled. The program's clock stands still while it is
    frozen. `end` says how we ended the program, for the report of its end. The report of an `unwanted` program is not
    kept. `oom_kills` is the kernel's count when the program started.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.since, self.limit = time.monotonic() - request.get("used", 0.0), request["timeout"]
        self.commands: dict[str, list[str]] = request.get("verbs", {})
        self.pid, self.chain = 0, request.get("lane", "")
        self.user: int = request.get("user", 0)
        self.end: dict[str, Any] = {}
        self.unwanted = False
        self.oom_kills = 0
        self._stopped, self._stopped_at = 0.0, 0.0

    @property
    def frozen(self) -> bool:
        return self._stopped_at > 0

    @property
    def stopped(self) -> float:
        """For how many seconds the program has been frozen in total."""
        return self._stopped + (time.monotonic() - self._stopped_at if self.frozen else 0.0)

    @property
    def until(self) -> float:
        """The moment at which the program reaches its time limit."""
        return NEVER if self.frozen or self.end else self.since + self._stopped + self.limit

    def note(self, number: int) -> None:
        """Note that this signal was sent, by us or by the worker."""
        if number == signal.SIGSTOP and not self.frozen:
            self._stopped_at = time.monotonic()
        elif number == signal.SIGCONT:
            self._stopped, self._stopped_at = self.stopped, 0.0

    def send(self, number: int) -> None:
        self.note(number)
        with contextlib.suppress(OSError):  # it has ended
            if self.user:
                users.signal_all(self.user, number)
            elif self.pid:
                os.killpg(self.pid, number)
        with contextlib.suppress(OSError):
            if argv := self.commands.get(signal.Signals(number).name):
                os.posix_spawnp(argv[0], argv, os.environ, setsid=True)


def find_executable(program: str, path: str) -> str:
    """The path of a program, found as a shell finds it. Raises `FileNotFoundError` if it is not found."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        found = f"{folder or '.'}/{program}"
        if os.access(found, os.X_OK):
            return found
    raise FileNotFoundError(program)
