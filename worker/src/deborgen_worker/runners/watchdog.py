"""Has the supervisor watch over containers, which are not its children.

It ends one that has used up its time, or that no worker takes up, and freezes and wakes them at the owner's word while
the worker is dead.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

#: How much longer than its time limit a program may run when the worker does not end it. A test may make it shorter.
BACKSTOP_SECONDS = float(os.environ.get("DEBORGEN_BACKSTOP_SECONDS", "30"))
ANSWER_SECONDS = 10.0
#: What a command that steers a container may need of this worker's environment.
ENVIRONMENT = ("PATH", "HOME", "XDG_RUNTIME_DIR", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "TMPDIR")


class Watchdog:
    """`send` says something to the supervisor, without waiting for an answer and without an error."""

    def __init__(
        self, send: Callable[[dict[str, Any]], None], check: Callable[[], str], close: Callable[[], None]
    ) -> None:
        self._send, self.check, self.close = send, check, close
        self._watched: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, tuple[threading.Event, dict[str, Any]]] = {}

    def watch(self, attempt: str, timeout: float, used: float, commands: dict[str, list[str]]) -> None:
        """Watch over a container. `commands` has for each signal the command that sends it."""
        env = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        self._watched[attempt] = {
            "do": "watch", "attempt": attempt, "timeout": timeout + BACKSTOP_SECONDS, "verbs": commands, "env": env,
            "since": time.monotonic() - used,
        }  # fmt: skip
        self._say(attempt)

    def find(self, attempt: str, timeout: float, used: float, commands: dict[str, list[str]]) -> dict[str, Any]:
        """The same for a container of an earlier session; what the supervisor knows of it."""
        waiting, answer = self._answers[attempt] = (threading.Event(), {})
        self.watch(attempt, timeout, used, commands)
        waiting.wait(ANSWER_SECONDS)
        del self._answers[attempt]
        return answer

    def note(self, attempt: str, *, frozen: bool) -> None:
        """Its time does not run while it is frozen."""
        self._send({"do": "note", "attempt": attempt, "signal": signal.SIGSTOP if frozen else signal.SIGCONT})

    def unwatch(self, attempt: str) -> None:
        if self._watched.pop(attempt, None) is not None:
            self._send({"do": "unwatch", "attempt": attempt})

    def ended_by_supervisor(self, attempt: str) -> dict[str, Any]:
        """How the supervisor has ended the container, if it has: a part of its `Exit`."""
        found: dict[str, Any] = self._watched.get(attempt, {}).get("end", {})
        return found

    # What the line to the supervisor brings

    def hear(self, record: dict[str, Any]) -> None:
        """An answer about a container, or its end by the supervisor's hand."""
        attempt = record.get("exit") or record.get("attempt", "")
        if attempt in self._watched and (end := record.get("end", record)) and ("timed_out" in end or "error" in end):
            self._watched[attempt]["end"] = {name: end[name] for name in ("timed_out", "error") if name in end}
        if "standing" in record and attempt in self._answers:
            waiting, answer = self._answers[attempt]
            answer |= record
            waiting.set()

    def renew(self) -> None:
        """There is a new supervisor, which knows of no container yet."""
        for attempt in list(self._watched):
            self._say(attempt)

    def _say(self, attempt: str) -> None:
        message = self._watched[attempt]
        self._send({**message, "used": time.monotonic() - message["since"]})
