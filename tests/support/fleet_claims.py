"""Which fleets of hosts on this machine are in use, so that nothing of a killed run stays forever.

Each fleet has a file that its process keeps locked while it lives. The kernel releases the lock when the process
dies, however it dies. A file that is not locked therefore belongs to a run that was killed, and its hosts are removed.
Fleets of other checkouts and of other runs that are still alive are never touched.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import IO

from support.host_images import CACHE, locked, podman

CLAIMS = CACHE / "fleets"


def claim(prefix: str) -> IO[str]:
    """Mark the fleet as in use, for as long as the returned file is open."""
    with locked("fleets"):
        CLAIMS.mkdir(exist_ok=True)
        file = (CLAIMS / prefix).open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def give_up(prefix: str) -> None:
    """Remove the claim. After that, nobody cleans up after the fleet."""
    (CLAIMS / prefix).unlink(missing_ok=True)


def remove_leftovers() -> None:
    """Remove the fleets whose processes were killed."""
    with locked("fleets"):
        for path in CLAIMS.glob("*"):
            with path.open("r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                remove(path.name)
                give_up(path.name)


def remove(prefix: str) -> None:
    """Remove all containers, volumes and the network of a fleet, and the folder of connections to it."""
    containers = _podman("ps", "-aq", "--filter", f"name=^{prefix}-").split()
    if containers:
        _podman("rm", "-f", "-t", "0", "-v", *containers)
    volumes = _podman("volume", "ls", "-q", "--filter", f"name={prefix}-").split()
    if volumes:
        _podman("volume", "rm", "-f", *volumes)
    _podman("network", "rm", "-f", prefix)
    shutil.rmtree(connections(prefix), ignore_errors=True)


def connections(prefix: str) -> Path:
    """The folder of open connections to a fleet. Its path must be short, because Unix sockets are in it."""
    return Path("/tmp") / f"{prefix}-cp"


def _podman(*words: str) -> str:
    done = subprocess.run([*podman(), *words], capture_output=True, text=True, check=False, timeout=180)
    return done.stdout
