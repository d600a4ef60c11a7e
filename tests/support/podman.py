"""Real Podman for tests: a service with the tests' own configuration, a small image, and no leftovers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
CONF = ROOT / "tools" / "containers.conf"
IMAGE = "localhost/deborgen-test:1"


class Podman:
    """Podman's command line, and a service of the test's own that can be stopped, hung and killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "p.sock"
        self.url = f"unix://{self.socket}"
        self.env = os.environ | {"CONTAINERS_CONF": str(CONF)}
        self._service: subprocess.Popen[bytes] | None = None

    def __call__(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["podman", *words], env=self.env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout.strip()

    def start_service_on_a_port(self) -> Podman:
        """Start the service on a TCP port, so that a fault proxy can stand in front of it."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"tcp://127.0.0.1:{port}"
        return self.start_service()

    def _listens(self) -> bool:
        if self.url.startswith("unix://"):
            return self.socket.exists()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2]))).close()
            return True
        return False

    def start_service(self) -> Podman:
        self.socket.unlink(missing_ok=True)
        self._service = subprocess.Popen(
            ["podman", "system", "service", "--time", "0", self.url],
            cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._listens)
        return self

    @property
    def service(self) -> subprocess.Popen[bytes]:
        assert self._service is not None
        return self._service

    def stop_service(self) -> None:
        if self._service is not None:
            self._service.kill()
            self._service.wait()
            self._service = None

    def of(self, worker: str, *more: str) -> list[str]:
        """The containers of a worker, running or not."""
        return self("ps", "-aq", "--filter", f"label=deborgen.worker={worker}", *more).split()

    def inspect(self, container: str) -> dict[str, Any]:
        return dict(json.loads(self("inspect", container))[0])

    def remove_all(self, worker: str) -> None:
        for container in self.of(worker):
            self("rm", "-f", "-t", "0", container, check=False)


@pytest.fixture(scope="session")
def podman_ready() -> None:
    """Podman is installed and the image is there."""
    if shutil.which("podman") is None and os.geteuid() != 0:
        pytest.skip("needs Podman, and root to install it")
    done = subprocess.run([ROOT / "tools" / "podman.sh", IMAGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def podman(podman_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """A service that the tests of a module share."""
    each = Podman(tmp_path_factory.mktemp("p")).start_service()
    yield each
    each.stop_service()
