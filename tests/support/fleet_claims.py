"""Which fleets of hosts on this machine are in use, so that a killed run leaves nothing behind for ever.

Each fleet has a file that its process keeps locked while it lives. The kernel gives the lock back when the process
dies, however it dies. A file that nobody holds therefore belongs to a run that was killed, and its hosts are removed.
Fleets of other checkouts and of other runs that still live are never touched.
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
    """Say that the fleet is in use, for as long as the answer stays open."""
    with locked("fleets"):
        CLAIMS.mkdir(exist_ok=True)
        file = (CLAIMS / prefix).open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def give_up(prefix: str) -> None:
    """Forget the claim. Nobody will look for what is left of the fleet."""
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
    """Where open connections to a fleet are kept. The path must be short, because it names Unix sockets."""
    return Path("/tmp") / f"{prefix}-cp"


def _podman(*words: str) -> str:
    done = subprocess.run([*podman(), *words], capture_output=True, text=True, check=False, timeout=180)
    return done.stdout
