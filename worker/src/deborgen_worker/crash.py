"""Places at which a test may end the worker as a power cut or kill -9 would. Without the variable they do nothing.

The test of restarts finds every place in the source.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "DEBORGEN_WORKER_CRASH_AT"

_armed = os.environ.get(VARIABLE)


def point(name: str) -> None:
    """End the process here, at once and without any cleanup, if this place was asked for."""
    if _armed == name:
        os.kill(os.getpid(), signal.SIGKILL)
