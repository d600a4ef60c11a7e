"""Places at which a test may end the worker as a power cut or kill -9 would. Without the variable they do nothing."""

from __future__ import annotations

import os
import signal

VARIABLE = "DEBORGEN_WORKER_CRASH_AT"

#: Every place, in the order in which an attempt passes them. The test of restarts walks this list.
POINTS = (
    "before-claim-written",
    "after-claim-written",
    "after-claim-answered",
    "after-assignment-written",
    "after-accepted",
    "after-start-written",
    "after-started",
    "after-exited",
    "after-collected",
    "after-result-appended",
    "after-result-written",
    "after-result-sent",
    "after-settled",
)

_armed = os.environ.get(VARIABLE)


def point(name: str) -> None:
    """End the process here, at once and without any cleanup, if this place was asked for."""
    if _armed is not None and _armed == name:
        os.kill(os.getpid(), signal.SIGKILL)
