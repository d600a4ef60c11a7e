"""`deborgen up`: one process that runs a coordinator and a worker on this machine as its children.

All its data is in one folder, so jobs and results outlive it: the next `up` continues where this one stopped. When the
process ends, for whatever reason, its children end too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from deborgen import children, runtime
from deborgen.directories import data_dir
from deborgen.errors import DeborgenError, NotPossible, Unreachable
from deborgen.local_pool import HEALTHY_WITHIN_SECONDS, STOPPED_WITHIN_SECONDS, LocalPool, PoolPlan, Runner

#: The reason why Podman does not work has at most this many characters.
LONGEST_REASON = 200


def make_plan(folder: Path | None, port: int | None, runner: str, worker: dict[str, str]) -> PoolPlan:
    """Decide everything that can be decided before anything starts. `worker` has further settings of the worker."""
    if not (find_spec("deborgen_coordinator") and find_spec("deborgen_worker")):
        raise DeborgenError("the coordinator and the worker are not installed here", "pip install 'deborgen[up]'")
    reason = "" if runner == "subprocess" else why_not_podman()
    if runner == "podman" and reason:
        raise NotPossible(f"Podman does not work here: {reason}", "deborgen up --runner subprocess works without it")
    if worker.get("builds") and (reason or runner == "subprocess"):
        raise NotPossible(f"--builds needs Podman: {reason or 'the runner is subprocess'}", "leave out --builds")
    chosen: Runner = "subprocess" if reason or runner == "subprocess" else "podman"
    where = (folder or data_dir() / "up").absolute()
    return PoolPlan(where, port, chosen, reason, runner == "auto" and "builds" not in worker, worker)


def why_not_podman() -> str:
    """Why containers cannot run here, in a few words; empty if they can."""
    if shutil.which("podman") is None:
        return "it is not installed"
    try:
        done = children.ask(["podman", "info", "--format", "{{.Host.OCIRuntime.Name}}"], within=20)
    except subprocess.TimeoutExpired:
        return "`podman info` does not answer"
    except OSError as why:
        return str(why)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines() or ["`podman info` fails"]
    return lines[-1][:LONGEST_REASON]


def run(plan: PoolPlan, on_up: Callable[[runtime.Runtime], None]) -> None:
    """Start the coordinator and the worker, call `on_up` once they answer, then wait for a signal.

    Raises if one of them cannot start or ends by itself.
    """
    # The lock is never released explicitly: it ends with the process, and `down` waits for that.
    if runtime.lock() is None:
        raise already_up()
    pool = LocalPool(plan)
    try:
        with children.interruptible():
            state = pool.start()
            on_up(state)
            pool.wait(state)
    finally:
        pool.stop()


def already_up() -> NotPossible:
    state = runtime.read()
    where = f" at {state.url}" if state else ""
    return NotPossible(f"deborgen is already up{where}", "deborgen down stops it")


def detach(arguments: list[str], folder: Path) -> runtime.Runtime:
    """Start `deborgen up` as a separate process, and return once it is up."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / "up.log"
    with open(log, "wb", opener=partial(os.open, mode=0o600)) as out:
        process = children.spawn([sys.executable, "-m", "deborgen", "up", *arguments], out, own_session=True)
    deadline = time.monotonic() + 2 * HEALTHY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        state = runtime.find()
        if state and state.pid == process.pid:
            return state
        if process.poll() is not None:
            said = log.read_text("utf-8", errors="replace").strip().removeprefix("error: ")
            raise NotPossible(said or "deborgen up ended without an error message", "" if said else f"see {folder}")
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    raise Unreachable("deborgen up did not start in time", f"see {log}")


def down() -> runtime.Runtime | None:
    """Stop this user's `deborgen up`, wait until it is gone, and return its last known state.

    If it was not running, end the processes that a killed one left behind, and return None.
    """
    state = runtime.find()
    if state is None:
        children.end_leftovers(runtime.read())
        runtime.clear()
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGTERM)
    # It stops its worker first and then its coordinator; either may take all of its time.
    deadline = time.monotonic() + 2 * STOPPED_WITHIN_SECONDS + 5
    while runtime.is_locked():
        if time.monotonic() > deadline:
            raise NotPossible(f"process {state.pid} does not end", f"kill -9 {state.pid}, then deborgen down again")
        time.sleep(0.05)
    return state
