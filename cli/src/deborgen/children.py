"""The child processes of `deborgen up`. None of them outlives it; they are ended with TERM, then with KILL."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from deborgen.runtime import Runtime

_PR_SET_PDEATHSIG = 1
#: A process that a killed `deborgen up` left running gets this many seconds after TERM, and again after KILL.
LEFTOVER_SECONDS = 15.0

#: A setting of the worker.
PRIORITY = "DEBORGEN_WORKER_PRIORITY"


def environment() -> dict[str, str]:
    """The environment without deborgen's own settings: settings for the command must not reach the servers.

    Only the priority of jobs is kept, for which `deborgen up` has no option.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith("DEBORGEN_") or key == PRIORITY}


def ask(command: list[str], within: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, for at most `within` seconds, and capture its output as text."""
    return subprocess.run(
        command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        timeout=within, check=False,
    )  # fmt: skip


def spawn(command: list[str], log: IO[bytes], *, own_session: bool = False) -> subprocess.Popen[bytes]:
    """Start a child whose output goes to a log.

    It has its own process group, so that Ctrl-C at the terminal reaches only the parent, which then ends its children
    in the right order. With `own_session`, the process is independent, and may outlive its parent.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=os.environ.copy() if own_session else environment(),
        start_new_session=own_session,
        process_group=None if own_session else 0,
        preexec_fn=None if own_session else _end_with_parent(),
    )


def _end_with_parent() -> Callable[[], None] | None:
    """On Linux the kernel ends a child whose parent is killed; elsewhere the next `deborgen up` does."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None:
        return None
    parent = os.getpid()

    def request_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent was killed before the request, so the kernel will send no signal
            os._exit(1)

    return request_signal


def end(process: subprocess.Popen[bytes], within: float) -> None:
    """Send TERM, and KILL if the process does not end in time."""
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_leftovers(state: Runtime | None) -> None:
    """End the children that a killed `deborgen up` left running. A process is ours if it uses our data folder."""
    if state is None:
        return
    for pid in state.children.values():
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not _is_ours(pid, state):
                break
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
            deadline = time.monotonic() + LEFTOVER_SECONDS
            while _is_ours(pid, state) and time.monotonic() < deadline:
                time.sleep(0.05)


def _is_ours(pid: int, state: Runtime) -> bool:
    words = _command_line(pid)
    return state.data_dir in words and "deborgen_" in words


def _command_line(pid: int) -> str:
    """The command line of a process; empty if it is gone or a zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    with contextlib.suppress(OSError):  # a system without /proc; -ww keeps `ps` from truncating long lines
        return ask(["ps", "-ww", "-o", "args=", "-p", str(pid)]).stdout
    return ""


class EndRequested(KeyboardInterrupt):
    """A signal asked the process to end."""


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block, just as Ctrl-C does.

    All such signals after the first are ignored, even after the block, so that the shutdown can finish in order.
    """
    ours = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise EndRequested

    for each in ours:
        signal.signal(each, on_signal)
    with contextlib.suppress(EndRequested):
        yield
