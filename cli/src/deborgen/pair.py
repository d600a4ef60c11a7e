"""The pair that `deborgen up` starts: a coordinator and a worker, their tokens, and their logs."""

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
from deborgen.errors import DeborgenError, NotPossible, Unreachable
from deborgen.places import write_private
from deborgen_shared.states import Role, WorkerState

if TYPE_CHECKING:
    from deborgen.connection import Connection

PORT = 8765
HEALTHY_WITHIN_SECONDS = 30.0
STOPPED_WITHIN_SECONDS = 20.0

#: A worker that is stopped with `down` gives back what it runs after this long; the jobs go on with the next `up`.
DRAIN = "2s"

Runner = Literal["podman", "subprocess"]


@dataclass(frozen=True)
class Plan:
    """What `up` is going to start."""

    data_dir: Path
    port: int | None
    """None: the usual one if nobody has it, else one that is free."""
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
    """The usual port if nobody has it, else one that is free."""
    for port in (PORT, 0):
        with socket.socket() as probe:
            # The server that comes after us sets this, too: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise NotPossible("no port is free on 127.0.0.1")


@dataclass
class Pair:
    """The running pair. `start`, then `wait`; `stop` in every case."""

    plan: Plan
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    url: str = ""

    def start(self) -> runtime.Runtime:
        """Start both, and return when they answer. What an `up` that was killed left behind is ended first."""
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
            # Podman answers, and is yet of no use to the worker: plain processes are better than nothing.
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
        """Start it on a port that is really ours: another program may take one that was free a moment ago."""
        for tries_left in (2, 1, 0):
            port = self.plan.port or free_port()
            self.url = f"http://127.0.0.1:{port}"
            serve = [
                "deborgen_coordinator", "serve", "--listen", f"127.0.0.1:{port}",
                "--data-dir", str(self.plan.data_dir / "coordinator"),
            ]  # fmt: skip
            self._spawn("coordinator", serve)
            try:
                self._until("coordinator", secret, _is_ours, "the coordinator did not come up in time")
                break
            except DeborgenError:
                if self.plan.port is not None or not tries_left:
                    raise
                children.end(self.processes["coordinator"], STOPPED_WITHIN_SECONDS)

    def _start_worker(self, token: Path, secret: str) -> None:
        run = [
            "deborgen_worker", "run", "--coordinator", self.url, "--name", worker_name(),
            "--token-file", str(token), "--state-dir", str(self.plan.data_dir / "worker"),
            "--runner", "both" if self.plan.runner == "podman" else "subprocess", "--drain-grace", DRAIN,
        ]  # fmt: skip
        for name in ("cpus", "memory"):
            if value := getattr(self.plan, name):
                run += [f"--{name}", value]
        self._spawn("worker", run)
        self._until("worker", secret, _is_open, "the worker did not join in time")

    def wait(self) -> None:
        """Until a signal ends it; raises when one of the two ends by itself."""
        while True:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise self._died(name)
            time.sleep(0.2)

    def stop(self) -> None:
        """End the worker first, so that it can say goodbye, then the coordinator."""
        runtime.clear()
        for name in ("worker", "coordinator"):
            if process := self.processes.get(name):
                children.end(process, STOPPED_WITHIN_SECONDS)

    def log(self, name: str) -> Path:
        return self.plan.data_dir / f"{name}.log"

    def _token(self, role: Role, name: str) -> Path:
        """The file of a token, made at the first `up` and kept with the data that it belongs to."""
        path = self.plan.data_dir / "coordinator" / f"{role}-{name}.token"
        if path.exists():
            return path
        command = [
            sys.executable, "-m", "deborgen_coordinator", "token", "create", "--role", role, "--name", name,
            "--data-dir", str(self.plan.data_dir / "coordinator"),
        ]  # fmt: skip
        done = children.ask(command, 60)
        if done.returncode:
            raise NotPossible(f"no token could be made: {done.stderr.strip()[-500:]}")
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
        last = lines[-1] if lines else "it said nothing"
        return DeborgenError(f"the {name} ended: {last[-500:]}", f"see {log}")


def _is_ours(connection: Connection) -> bool:
    """Whether a coordinator answers that knows our token. One that does not is somebody else's."""
    from deborgen_shared import contract

    with contextlib.suppress(DeborgenError):
        connection.call(contract.ME)
        return True
    return False


def _is_open(connection: Connection) -> bool:
    from deborgen_shared import contract

    workers = connection.call(contract.LIST_WORKERS).items
    return any(worker.name == worker_name() and worker.state == WorkerState.OPEN for worker in workers)
