"""Podman's service: the one that is there, or one of our own.

Our own has a folder of the worker as its working directory. It may die with the worker or outlive it: containers need
neither. It ends when nobody has called it for a while.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from deborgen_worker.runners.podman.client import ping
from deborgen_worker.runners.protocol import RunnerDown
from deborgen_worker.sockets import short_path

START_SECONDS = 20.0
#: The worker calls more often than this, to see whether it is well.
IDLE_SECONDS = 60


class Service:
    """Finds or starts the service. `folder` is the working directory of our own, where conmon leaves its `oom` file."""

    def __init__(self, configured: str, state: Path) -> None:
        self.folder = state / "podman"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.own = False
        self._links = contextlib.ExitStack()
        self.url = configured or usual()
        if "://" not in self.url:
            self.url = f"unix://{self.url}"
        if not answers(self.url):
            if configured:
                raise RunnerDown(f"nothing answers on {configured}")
            self.own = True
            self.url = f"unix://{self._links.enter_context(short_path(self.folder / 'podman.sock'))}"
            self.check()

    def check(self) -> None:
        """The service answers, or is started again if it is our own."""
        try:
            return ping(self.url)
        except RunnerDown:
            if not self.own:
                raise
        program = shutil.which("podman")
        if program is None:
            raise RunnerDown("it is not installed (there is no program podman)")
        with (self.folder / "service.log").open("ab") as log:
            child = subprocess.Popen(
                [program, "system", "service", "--time", str(IDLE_SECONDS), self.url],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + START_SECONDS
        while not answers(self.url):
            if child.poll() is not None or time.monotonic() > end:
                last = (self.folder / "service.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise RunnerDown(f"its service does not start: {last[0] if last else 'no reason given'}")
            time.sleep(0.05)
        return None

    def close(self) -> None:
        self._links.close()


def answers(url: str) -> bool:
    with contextlib.suppress(RunnerDown):
        ping(url)
        return True
    return False


def usual() -> str:
    """Where Podman's socket usually is: the user's, or root's for root."""
    user = os.geteuid()
    folder = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{user}") if user else "/run"
    return f"{folder}/podman/podman.sock"
