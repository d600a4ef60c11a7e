"""Podman's service: the one that is there, or one of our own.

Our own runs in a session of its own with a folder of the worker as its working directory. It may die with the worker or
outlive it: containers need neither.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import psutil

from deborgen_worker.runners.podman.client import Client
from deborgen_worker.runners.protocol import RunnerDown
from deborgen_worker.sockets import short_path

START_SECONDS = 20.0
END_SECONDS = 5.0


class Service:
    """Finds or starts the service. `folder` is the working directory of our own, where conmon leaves its `oom` file."""

    def __init__(self, configured: str, state: Path) -> None:
        self.folder = state / "podman"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._pid_file = self.folder / "service.pid"
        self.own = False
        self.url = ""
        self._links = contextlib.ExitStack()
        for url in [_as_url(configured)] if configured else usual():
            with contextlib.suppress(RunnerDown):
                Client(url).ping()
                self.url = url
                break
        if not self.url:
            if configured:
                raise RunnerDown(f"nothing answers on {configured}")
            self.own = True
            self.url = f"unix://{self._links.enter_context(short_path(self.folder / 'podman.sock'))}"
            self.ensure()

    def ensure(self) -> None:
        """Our own service answers, or is started again."""
        with contextlib.suppress(RunnerDown):
            return Client(self.url).ping()
        program = shutil.which("podman")
        if program is None:
            raise RunnerDown("it is not installed (there is no program podman)")
        self.stop()
        with (self.folder / "service.log").open("ab") as log:
            child = subprocess.Popen(
                [program, "system", "service", "--time", "0", self.url],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._pid_file.write_text(str(child.pid))
        end = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(RunnerDown):
                return Client(self.url).ping()
            if child.poll() is not None or time.monotonic() > end:
                last = (self.folder / "service.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise RunnerDown(f"its service does not start: {last[0] if last else 'no reason given'}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End our own service, if it is ours and there; what it started goes on."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            service = psutil.Process(int(self._pid_file.read_text()))
            if "service" in service.cmdline() and self.folder.samefile(service.cwd()):
                service.kill()
                service.wait(END_SECONDS)
        self._pid_file.unlink(missing_ok=True)

    def close(self) -> None:
        if self.own:
            self.stop()
        self._links.close()


def _as_url(text: str) -> str:
    return text if "://" in text else f"unix://{text}"


def usual() -> list[str]:
    """Where Podman's socket usually is: the user's, or root's for root."""
    if os.geteuid() == 0:
        places = ["/run/podman/podman.sock"]
    else:
        places = [f"{os.environ.get('XDG_RUNTIME_DIR', f'/run/user/{os.geteuid()}')}/podman/podman.sock"]
    return [f"unix://{place}" for place in places if Path(place).exists()]
