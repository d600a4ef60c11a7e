"""Waiting for something to become true. Tests never sleep for a fixed time: they ask again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

T = TypeVar("T")
#: How many characters of a log are shown.
TAIL = 3000


def wait_until(
    condition: Callable[[], T | Literal[False] | None],
    seconds: float = 60.0,
    what: str = "the condition",
    every: float = 0.05,
    log: Path | None = None,
) -> T:
    """Ask until the answer is true, and return that answer.

    When `seconds` have passed, the test fails. Its message names `what` was waited for, the time, the last answer and
    the last lines of `log`, if a log is given. The default time suits a busy machine; most waits end much sooner.
    """
    began = time.monotonic()
    while True:
        answer = condition()
        if answer:
            return answer
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"waited {waited:.1f} s for {what}; the last answer was {answer!r}{_tail(log)}")
        time.sleep(every)


def _tail(log: Path | None) -> str:
    if log is None:
        return ""
    if not log.exists():
        return f"\nthere is no {log}"
    return f"\n{log} ends with:\n{log.read_text(errors='replace')[-TAIL:]}"
