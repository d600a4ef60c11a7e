"""Why this worker is being ended: its service manager restarts it, stops it for good, or has nothing to do with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from enum import Enum, auto
from pathlib import Path

#: Wait at most this many seconds for the service manager's answer. A unit's stop time must leave room for it.
ASK_SECONDS = 10.0


class Ending(Enum):
    """How the worker ends."""

    #: Running jobs continue, and the next session adopts them.
    HAND_OVER = auto()
    #: Running jobs are given back without delay.
    AT_ONCE = auto()
    #: Running jobs may finish for a while, and the rest are given back.
    DRAIN = auto()


def ending() -> Ending:
    """How to end now. Only a restart of the worker's unit hands over: after anything else, no next session may come.

    A service manager that does not answer is most likely shutting down the machine.
    """
    unit = own_unit(_cgroups())
    if unit is None:
        return Ending.DRAIN
    scope, name = unit
    try:
        done = subprocess.run(
            ["systemctl", scope, "list-jobs", "--full", "--no-legend", "--no-pager"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_SECONDS, check=True,
            env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"},
        )  # fmt: skip
    except FileNotFoundError:
        return Ending.DRAIN
    except (OSError, subprocess.SubprocessError):
        return Ending.AT_ONCE
    job = job_of(name, done.stdout)
    if not job:
        return Ending.DRAIN
    return Ending.HAND_OVER if job == "restart" else Ending.AT_ONCE


def unit_to_stop() -> tuple[str, str] | None:
    """The unit whose main process this worker is, and the option of `systemctl` for its manager. None for a worker in a
    terminal, also if the terminal is a service."""
    return own_unit(_cgroups()) if os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()) else None


def stop_unit(unit: tuple[str, str]) -> None:
    """Have a unit stopped, so that its manager does not start it again, for example after a crash."""
    scope, name = unit
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # without the right to do so, it is not stopped
        subprocess.run(
            ["systemctl", scope, "stop", "--no-block", "--no-ask-password", name],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_SECONDS, check=False,
        )  # fmt: skip


def own_unit(cgroups: str) -> tuple[str, str] | None:
    """The unit of a process with these control groups, and the option of `systemctl` for its manager.

    None if it is not in a service, for example in a terminal or a container.
    """
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in cgroups.splitlines() if line.count(":") >= 2}
    path = paths.get("name=systemd") or paths.get("", "")
    units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
    if not units or units[-1].endswith(".scope") or units[-1].startswith("user@"):
        return None
    return "--user" if any(part.startswith("user@") for part in units) else "--system", units[-1]


def job_of(unit: str, listed: str) -> str:
    """The type of the unit's job, from a list with a line per job: its number, its unit, its type and its state."""
    rows = (line.split() for line in listed.splitlines())
    return next((row[row.index(unit) + 1] for row in rows if unit in row[:-1]), "")


def _cgroups() -> str:
    with contextlib.suppress(OSError):  # only Linux has this file
        return Path("/proc/self/cgroup").read_text()
    return ""
