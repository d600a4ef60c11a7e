"""Points at which a test may end the worker as `kill -9` would. Without the variable they do nothing.

The test of restarts finds every crash point in the source.
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
