"""End a worker and everything of it, also if the worker is dead or does not answer."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import time
from pathlib import Path

from deborgen_shared.client.transport import NoAnswer, Refused, Transport
from deborgen_shared.states import Outcome
from deborgen_worker import __version__, host, service_manager, session
from deborgen_worker.control import SOCKET
from deborgen_worker.coordinator import CoordinatorClient
from deborgen_worker.disk import Disk
from deborgen_worker.exit import CannotRun
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.runners.unattended import Unattended
from deborgen_worker.settings import SettingsError
from deborgen_worker.sockets import listener_pid
from deborgen_worker.spool import Spool
from deborgen_worker.token import TokenFile

#: The owner's reason, which the next session reports with the jobs that were ended.
REASON = "its owner stopped the worker"
#: Wait at most this many seconds for a killed worker to be gone.
KILL_SECONDS = 10.0


def stop_unit(state: Path) -> None:
    """Stop the unit of the state directory's worker, if it has one."""
    last = session.read(state)
    if last is not None and last.unit is not None:
        service_manager.stop_unit(last.unit)


def act_as_owner_of(state: Path) -> None:
    """Become the user of the state directory, if we are root. Its files stay readable for its worker, and Podman is the
    worker's Podman."""
    if os.geteuid() != 0 or not state.exists() or (uid := state.stat().st_uid) == 0:
        return
    try:
        user = pwd.getpwuid(uid)
    except KeyError:  # in a container, users may have no names
        return
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(uid)
    os.chdir(state)
    os.environ |= {"HOME": user.pw_dir, "USER": user.pw_name, "XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    os.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)


def await_end(state: Path, seconds: float) -> None:
    """Wait until no worker uses the state directory. A worker that takes longer is killed."""
    for limit in (seconds, KILL_SECONDS):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            held = session.lock(state)
            if held is not None:
                os.close(held)
                return
            time.sleep(0.05)
        if pid := listener_pid(state / SOCKET):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    raise SettingsError(f"the worker on {state} does not end; end it with your service manager")


def end_abandoned(state: Path, *, leaving: bool = False) -> str:
    """End everything that a worker has left, and say what was done. Jobs that were ended run elsewhere at once, if the
    coordinator can be told."""
    held = session.lock(state)
    if held is None:
        raise SettingsError(f"another worker has been started on {state}; run this command again")
    try:
        with Unattended(state) as programs:
            unsent = _note_stop(state)
            found = sorted(programs.end())
    finally:
        os.close(held)
    said = []
    if found:
        said.append(f"ended {len(found)} {'job' if len(found) == 1 else 'jobs'}: {', '.join(found)}")
    if leaving or (found and not unsent):  # the coordinator would take unsent results of a worker that left for stale
        said.append(_leave(state))
    checked = "nothing of deborgen runs here now"
    said.append(f"containers could not be checked: {programs.trouble}" if programs.trouble else checked)
    return "; ".join(said)


def _note_stop(state: Path) -> int:
    """Note that the attempts of a dead worker are ended, so that the next session gives them back. Returns how many
    results are still to be sent."""
    spool = Spool(state, Disk(), host.boot_id())
    with contextlib.suppress(SpoolFullError):  # then they end as errors
        for name, entry in spool.entries.items():
            if entry.result is None and entry.runner and not entry.ending:
                spool.stopped(name, Outcome.RELEASED, REASON)
        spool.commit()
    spool.close()
    return len(spool.unsent())


def _leave(state: Path) -> str:
    """Tell the coordinator that the newest session has left the pool."""
    last, trouble = session.read(state), "no session is known"
    try:
        if last is not None:
            transport = Transport(
                last.coordinator, TokenFile(Path(last.token_file)), agent=f"deborgen-worker/{__version__}",
                ca_file=last.ca_file or None,
            )  # fmt: skip
            CoordinatorClient(transport, last.name).leave(last.id)
            return f"{last.name} has left the pool until it is started again"
    except (NoAnswer, Refused, CannotRun, OSError, ValueError) as error:
        trouble = str(error)
    return f"the coordinator was not told ({trouble}), so the jobs are free when their leases end"
