"""A real coordinator in a process of its own, which a test can kill, restart and send requests to.

with CoordinatorProcess(tmp_path) as coordinator:
    run = coordinator.client("submitter").post("/v1/runs", json={"run": "true"}).json()
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import requests

from deborgen_coordinator.app import open_context
from deborgen_coordinator.http.decoding import convert
from deborgen_coordinator.operations.context import COORDINATOR
from deborgen_coordinator.operations.tokens import create
from deborgen_coordinator.settings import CoordinatorSettings
from deborgen_shared.messages import NewToken

READY = re.compile(r"deborgen-coordinator is ready at (http://\S+)")


class Client(requests.Session):
    """A session with a token. Its URLs are paths of the coordinator."""

    def __init__(self, coordinator: CoordinatorProcess, token: str | None) -> None:
        super().__init__()
        self.trust_env = False
        self._coordinator = coordinator
        self.token = token
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs.setdefault("timeout", 60)
        return super().request(method, self._coordinator.url + str(url), *args, **kwargs)


class CoordinatorProcess:
    """`deborgen-coordinator serve` with a data directory below `folder`, on a port that stays the same after a restart.

    Settings are given by their names: `CoordinatorProcess(tmp_path, lease_seconds=2, heartbeat_seconds=0.5)`.
    """

    def __init__(
        self,
        folder: Path,
        database: str = "",
        listen: str = "127.0.0.1:0",
        env: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "coordinator"
        self.database = database
        self.log = folder / "coordinator.log"
        self._listen = listen
        self.env = env or {}
        self._settings = settings
        self._tokens: dict[tuple[str, str], str] = {}
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.greeting = ""

    def __enter__(self) -> CoordinatorProcess:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def command(self, *arguments: str) -> list[str]:
        where = ["--data-dir", str(self.data_dir)]
        if self.database:
            where += ["--database", self.database]
        return [sys.executable, "-m", "deborgen_coordinator", *arguments, *where]

    def start(self, deadline: float = 90.0) -> CoordinatorProcess:
        """Start it, and return when it is ready."""
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command("serve", "--listen", self._listen, *flags),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=clean_environment() | self.env,
            )
        self.url = self._wait_until_ready(deadline)
        self._listen = self.url.removeprefix("http://")
        return self

    def _wait_until_ready(self, seconds: float) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while time.monotonic() < end:
                if not selector.select(0.2):
                    continue
                line = self.process.stdout.readline()
                if found := READY.search(line):
                    self.greeting = line
                    threading.Thread(target=self._keep_output, args=(self.process,), daemon=True).start()
                    return found[1]
                if not line:
                    break
        self.process.kill()
        raise AssertionError(f"the coordinator did not start:\n{self.log.read_text()[-4000:]}")

    def _keep_output(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.greeting += line

    def stop(self, seconds: float = 15.0) -> int:
        """Stop it with SIGTERM; returns its exit code."""
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        finally:
            self.kill()

    def kill(self) -> None:
        """kill -9 all its processes, as if the power failed."""
        if self.process is None:
            return
        for child in children_of(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.process = None

    def restart(self) -> CoordinatorProcess:
        self.kill()
        return self.start()

    def token(self, role: str, name: str | None = None) -> str:
        """A token with this role, created once per name."""
        name = name or f"test-{role}"
        if (role, name) not in self._tokens:
            self._tokens[role, name] = self._create_token(role, name)
        return self._tokens[role, name]

    def _create_token(self, role: str, name: str) -> str:
        """Do what `deborgen-coordinator token create` does, without a new process per token."""
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        context = open_context(CoordinatorSettings(data_dir=str(self.data_dir), database=self.database))
        try:
            return create(context, COORDINATOR, convert({"role": role, "name": name}, NewToken)).token
        finally:
            context.wakeups.close()
            context.store.close()

    def client(self, role: str | None = "admin", name: str | None = None) -> Client:
        """A session with a token of that role; None for a session without one."""
        return Client(self, self.token(role, name) if role else None)

    def logged(self) -> str:
        return self.log.read_text(errors="replace")


def clean_environment() -> dict[str, str]:
    """Our own environment, without a developer's settings.

    Jobs have the same priority as the tests. Otherwise they would wait for minutes while other tests are busy.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith("DEBORGEN_")}
    return own | {"DEBORGEN_WORKER_PRIORITY": "normal"}


def children_of(pid: int) -> list[int]:
    """The processes that any of its threads has started."""
    found: list[int] = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, each.read_text().split())
    return found


def family_of(pid: int) -> list[int]:
    """The process and all its descendants."""
    return [pid, *(each for child in children_of(pid) for each in family_of(child))]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    """A coordinator that the tests of a module share."""
    with CoordinatorProcess(tmp_path_factory.mktemp("coordinator")) as process:
        yield process


@pytest.fixture
def own_coordinator(tmp_path: Path) -> Iterator[CoordinatorProcess]:
    """A coordinator for one test."""
    with CoordinatorProcess(tmp_path) as process:
        yield process
