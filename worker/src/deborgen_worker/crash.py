"""Points at which a test can end the worker as `kill -9` would. Unless a test sets the variable, they do nothing.

A test finds every crash point in the source and restarts the worker after it.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "DEBORGEN_WORKER_CRASH_AT"

_armed = os.environ.get(VARIABLE)


def crash_point(name: str) -> None:
    """End the process here, at once and without any cleanup, if the test asked for this point."""
    if _armed == name:
        os.kill(os.getpid(), signal.SIGKILL)
