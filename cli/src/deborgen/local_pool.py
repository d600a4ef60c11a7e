"""The local pool of `deborgen up`: a coordinator and a worker, their tokens and their logs."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from deborgen import children, runtime
from deborgen.directories import write_private
from deborgen.errors import DeborgenError, NotPossible, Unreachable
from deborgen_shared.states import Role, WorkerState

if TYPE_CHECKING:
    from deborgen.connection import Connection

PORT = 8765
HEALTHY_WITHIN_SECONDS = 30.0
STOPPED_WITHIN_SECONDS = 20.0

#: On `down`, the worker gives its running jobs back after this time; they run again after the next `up`.
DRAIN_GRACE = "2s"

Runner = Literal["podman", "subprocess"]


@dataclass(frozen=True)
class PoolPlan:
    """What `deborgen up` is going to start."""

    data_dir: Path
    port: int | None
    """None for the usual port or, if that is taken, any free one."""
    runner: Runner
    why_not_podman: str = ""
    may_fall_back: bool = False
    cpus: str | None = None
    memory: str | None = None


def worker_name() -> str:
    return _as_name(socket.gethostname().split(".")[0]) or "local"


def person_name() -> str:
    try:
        return _as_name(getpass.getuser()) or "me"
    except (KeyError, OSError):
        return "me"


def _as_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).strip("-._")[:63]


def free_port() -> int:
    """The usual port or, if that is taken, any free one."""
    for port in (PORT, 0):
        with socket.socket() as probe:
            # The server sets this option too, so a port in TIME_WAIT counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise NotPossible("no port is free on 127.0.0.1")


@dataclass
class LocalPool:
    """A coordinator and a worker. Call `start`, then `wait`, and always `stop`."""

    plan: PoolPlan
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    url: str = ""

    def start(self) -> runtime.Runtime:
        """Start both, and return once they answer. Leftovers of a killed `deborgen up` are ended first."""
        folder = self.plan.data_dir
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        children.end_leftovers(runtime.read())
        admin = self._token(Role.ADMIN, person_name())
        worker = self._token(Role.WORKER, worker_name())
        secret = admin.read_text("utf-8").strip()
        self._start_coordinator(secret)
        try:
            self._start_worker(worker, secret)
        except DeborgenError as failure:
            if self.plan.runner != "podman" or not self.plan.may_fall_back:
                raise
            # Podman answers, but the worker cannot use it: plain processes are better than nothing.
            children.end(self.processes["worker"], STOPPED_WITHIN_SECONDS)
            self.plan = replace(self.plan, runner="subprocess", why_not_podman=failure.message)
            self._start_worker(worker, secret)
        state = runtime.Runtime(
            self.url, secret, os.getpid(), str(folder), worker_name(), self.plan.runner,
            {name: process.pid for name, process in self.processes.items()}, self.plan.why_not_podman,
        )  # fmt: skip
        runtime.write(state)
        return state

    def _start_coordinator(self, secret: str) -> None:
        """Start it, and try other ports if another program takes the one that was free a moment ago."""
        for tries_left in (2, 1, 0):
            port = self.plan.port or free_port()
            self.url = f"http://127.0.0.1:{port}"
            serve = [
                "deborgen_coordinator", "serve", "--listen", f"127.0.0.1:{port}",
                "--data-dir", str(self.plan.data_dir / "coordinator"),
            ]  # fmt: skip
            self._spawn("coordinator", serve)
            try:
                self._until("coordinator", secret, _is_ours, "the coordinator did not start in time")
                break
            except DeborgenError:
                if self.plan.port is not None or not tries_left:
                    raise
                children.end(self.processes["coordinator"], STOPPED_WITHIN_SECONDS)

    def _start_worker(self, token: Path, secret: str) -> None:
        run = [
            "deborgen_worker", "run", "--coordinator", self.url, "--name", worker_name(),
            "--token-file", str(token), "--state-dir", str(self.plan.data_dir / "worker"),
            "--runner", "both" if self.plan.runner == "podman" else "subprocess", "--drain-grace", DRAIN_GRACE,
        ]  # fmt: skip
        for name in ("cpus", "memory"):
            if value := getattr(self.plan, name):
                run += [f"--{name}", value]
        self._spawn("worker", run)
        self._until("worker", secret, _is_open, "the worker did not join in time")

    def wait(self) -> None:
        """Wait for a signal. Raises if one of the two processes ends by itself."""
        while True:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise self._died(name)
            time.sleep(0.2)

    def stop(self) -> None:
        """End the worker first, so that it can sign off, then the coordinator."""
        runtime.clear()
        for name in ("worker", "coordinator"):
            if process := self.processes.get(name):
                children.end(process, STOPPED_WITHIN_SECONDS)

    def log(self, name: str) -> Path:
        return self.plan.data_dir / f"{name}.log"

    def _token(self, role: Role, name: str) -> Path:
        """The file of a token, which is created at the first `up` and kept with the data."""
        path = self.plan.data_dir / "coordinator" / f"{role}-{name}.token"
        if path.exists():
            return path
        command = [
            sys.executable, "-m", "deborgen_coordinator", "token", "create", "--role", role, "--name", name,
            "--data-dir", str(self.plan.data_dir / "coordinator"),
        ]  # fmt: skip
        done = children.ask(command, 60)
        if done.returncode:
            raise NotPossible(f"no token could be created: {done.stderr.strip()[-500:]}")
        write_private(path, done.stdout.strip() + "\n")
        return path

    def _spawn(self, name: str, arguments: list[str]) -> None:
        with self.log(name).open("ab") as log:
            self.processes[name] = children.spawn([sys.executable, "-m", *arguments], log)

    def _until(self, name: str, secret: str, ready: Callable[[Connection], bool], otherwise: str) -> None:
        from deborgen.connection import Connection

        connection = Connection(self.url, secret, patience=0)
        deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
        while time.monotonic() < deadline:
            if self.processes[name].poll() is not None:
                raise self._died(name)
            if ready(connection):
                return
            time.sleep(0.05)
        raise Unreachable(otherwise, f"see {self.log(name)}")

    def _died(self, name: str) -> DeborgenError:
        log = self.log(name)
        lines = log.read_text("utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "its log is empty"
        return DeborgenError(f"the {name} ended unexpectedly: {last[-500:]}", f"see {log}")


def _is_ours(connection: Connection) -> bool:
    """Whether the coordinator that answers knows our token. If not, it is somebody else's."""
    from deborgen_shared import contract

    with contextlib.suppress(DeborgenError):
        connection.call(contract.ME)
        return True
    return False


def _is_open(connection: Connection) -> bool:
    from deborgen_shared import contract

    workers = connection.call(contract.LIST_WORKERS).items
    return any(worker.name == worker_name() and worker.state == WorkerState.OPEN for worker in workers)
