"""The file that lets the other commands find a running `deborgen up` without configuration.

The `up` process holds a lock while it lives. If the lock is free, the file is stale, however the process ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deborgen.directories import state_dir, write_private


@dataclass(frozen=True)
class Runtime:
    """A running `deborgen up`: its address, its token and its processes."""

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
    """The content of the file, which may be stale."""
    try:
        return Runtime(**json.loads(file().read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def find() -> Runtime | None:
    """The running `deborgen up`, if there is one."""
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
    """Take the lock until the descriptor is closed or the process ends. None if another process holds it."""
    lock_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(lock_file(), os.O_RDWR | os.O_CREAT, 0o600)
    # A process that tests whether the lock is held takes it for an instant itself: try several times.
    for _ in range(20):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return descriptor
    os.close(descriptor)
    return None
