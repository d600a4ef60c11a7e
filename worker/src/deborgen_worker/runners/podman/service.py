"""Podman's service: one that is already running, or one that we start.

Our own service has a folder of the worker as its working directory. It ends with the worker or, after a crash of the
worker, when it has not been called for a while. Running containers do not need it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from deborgen_worker.runners.podman.client import ping
from deborgen_worker.runners.protocol import RunnerDown
from deborgen_worker.sockets import listener_pid, short_path

START_SECONDS = 20.0
#: Our own service ends after this many seconds without a call. The worker calls it more often than that.
IDLE_SECONDS = 60


class Service:
    """Finds or starts the service. `folder` is the working directory of our own service, where conmon puts its `oom`
    file."""

    def __init__(self, configured: str, state: Path) -> None:
        self.folder = state / "podman"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.own = False
        self._links = contextlib.ExitStack()
        self.url = configured or default_socket()
        if "://" not in self.url:
            self.url = f"unix://{self.url}"
        if not is_reachable(self.url):
            if configured:
                raise RunnerDown(f"no service answers on {configured}; start it, or correct --podman-socket")
            self.own = True
            self.url = f"unix://{self._links.enter_context(short_path(self.folder / 'podman.sock'))}"
            self.check()

    def check(self) -> None:
        """Check that the service answers. If our own service does not, start it again."""
        try:
            return ping(self.url)
        except RunnerDown:
            if not self.own:
                raise
        program = shutil.which("podman")
        if program is None:
            raise RunnerDown("the program podman was not found")
        with (self.folder / "service.log").open("ab") as log:
            child = subprocess.Popen(
                [program, "system", "service", "--time", str(IDLE_SECONDS), self.url],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + START_SECONDS
        while not is_reachable(self.url):
            if child.poll() is not None or time.monotonic() > end:
                last = (self.folder / "service.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise RunnerDown(f"its service does not start: {last[0] if last else 'no reason given'}")
            time.sleep(0.05)
        return None

    def close(self) -> None:
        """End our own service. Running containers do not need it."""
        if self.own and (pid := listener_pid(self.folder / "podman.sock")):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        self._links.close()


def is_reachable(url: str) -> bool:
    with contextlib.suppress(RunnerDown):
        ping(url)
        return True
    return False


def default_socket() -> str:
    """The usual path of Podman's socket for this user."""
    user = os.geteuid()
    folder = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{user}") if user else "/run"
    return f"{folder}/podman/podman.sock"
