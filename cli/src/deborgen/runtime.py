"""The trace that a running `deborgen up` leaves, so that the other commands find it without configuration.

The process that is up holds a lock for as long as it lives. A file without a locked lock is stale, however it came
to be left behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deborgen.places import state_dir, write_private


@dataclass(frozen=True)
class Runtime:
    """What is up on this machine: where, with which token, and as which processes."""

    url: str
    token: str
    pid: int
    data_dir: str
    worker: str
    runner: str
    children: dict[str, int] = field(default_factory=dict)
    why_not_podman: str = ""


def file() -> Path:
    return state_dir() / "up.json"


def lock_file() -> Path:
    return state_dir() / "up.lock"


def read() -> Runtime | None:
    """What the file says, true or stale."""
    try:
        return Runtime(**json.loads(file().read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def find() -> Runtime | None:
    """The `deborgen up` that is running now, if there is one."""
    return read() if is_locked() else None


def write(runtime: Runtime) -> None:
    write_private(file(), json.dumps(asdict(runtime), indent=1) + "\n")


def clear() -> None:
    file().unlink(missing_ok=True)


def is_locked() -> bool:
    """Whether a process holds the lock of `deborgen up`."""
    try:
        with lock_file().open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def lock() -> int | None:
    """Hold the lock until the descriptor is closed or the process ends; None when another process holds it."""
    lock_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(lock_file(), os.O_RDWR | os.O_CREAT, 0o600)
    # A reader that asks whether the lock is held holds it for an instant itself: ask more than once.
    for _ in range(20):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return descriptor
    os.close(descriptor)
    return None
