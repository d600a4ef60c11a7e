"""The local pool of `deborgen up`: a coordinator and a worker, their tokens and their logs."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from deborgen import children, output, runtime
from deborgen.directories import config_dir, state_dir, write_private
from deborgen.errors import DeborgenError, NotPossible, Unreachable
from deborgen_shared.states import Role, WorkerState

if TYPE_CHECKING:
    from deborgen.connection import Connection

PORT = 8765
HEALTHY_WITHIN_SECONDS = 30.0
STOPPED_WITHIN_SECONDS = 20.0
#: Give up after this many restarts of killed processes: something is wrong with the machine.
MOST_RESTARTS = 5

#: On `down`, the worker gives its running jobs back after this time; they run again after the next `up`.
DRAIN_GRACE = "2s"

Runner = Literal["podman", "subprocess"]


@dataclass(frozen=True)
class PoolPlan:
    """What `deborgen up` is going to start."""

    data_dir: Path
    port: int | None
    """None means the usual port or, if it is taken, any free one."""
    runner: Runner
    why_not_podman: str = ""
    may_fall_back: bool = False
    worker: dict[str, str] = field(default_factory=dict)
    """Further settings of the worker: `cpus`, `memory`, `network`, `builds`."""


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
    """The usual port or, if it is taken, any free one."""
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
        """Start both, and return once they answer. First end the processes that a killed `deborgen up` left behind."""
        folder = self.plan.data_dir
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "coordinator").mkdir(exist_ok=True, mode=0o700)
        if os.geteuid() == 0:  # the worker runs jobs as other users, who must be able to enter their folders below
            (folder / "coordinator").chmod(0o700)
            folder.chmod(0o711)
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
        """Start the coordinator. If another program takes the free port first, try another port."""
        for tries_left in (2, 1, 0):
            port = self.plan.port or free_port()
            self.url = f"http://127.0.0.1:{port}"
            self._spawn_coordinator(port)
            try:
                self._wait_until("coordinator", secret, _knows_our_token, "the coordinator did not start in time")
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
            "--hide", ",".join(map(str, (self.plan.data_dir, config_dir(), state_dir()))),
        ]  # fmt: skip
        for name, value in self.plan.worker.items():
            run.append(f"--{name}={value}")
        self._spawn("worker", run)
        self._wait_until("worker", secret, _our_worker_is_open, "the worker did not join in time")

    def wait(self, state: runtime.Runtime) -> None:
        """Wait for a signal. A process that was killed is started again.

        Raises if a process ends by itself, or after too many restarts.
        """
        restarts = 0
        while True:
            for name, process in list(self.processes.items()):
                code = process.poll()
                if code is None:
                    continue
                restarts += 1
                ended_by_itself = code >= 0  # the code of a killed process is the negative number of the signal
                if ended_by_itself or restarts > MOST_RESTARTS:
                    raise self._error_of_ended(name)
                output.say(f"the {name} was killed ({signal.Signals(-code).name}); starting it again")
                self._restart(name, state)
            time.sleep(0.2)

    def _restart(self, name: str, state: runtime.Runtime) -> None:
        if name == "coordinator":
            self._spawn_coordinator(int(self.url.rpartition(":")[2]))
            self._wait_until(name, state.token, _knows_our_token, "the coordinator did not start in time")
        else:
            self._start_worker(self._token(Role.WORKER, worker_name()), state.token)
        runtime.write(replace(state, children={each: process.pid for each, process in self.processes.items()}))

    def _spawn_coordinator(self, port: int) -> None:
        folder = str(self.plan.data_dir / "coordinator")
        self._spawn(
            "coordinator", ["deborgen_coordinator", "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", folder]
        )

    def stop(self) -> None:
        """End the worker first, so that it can sign off, then the coordinator."""
        runtime.clear()
        for name in ("worker", "coordinator"):
            if process := self.processes.get(name):
                children.end(process, STOPPED_WITHIN_SECONDS)

    def log(self, name: str) -> Path:
        return self.plan.data_dir / f"{name}.log"

    def _token(self, role: Role, name: str) -> Path:
        """The file with a token. The first `up` creates it, and it is kept with the data."""
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
        with open(self.log(name), "ab", opener=partial(os.open, mode=0o600)) as log:
            self.processes[name] = children.spawn([sys.executable, "-m", *arguments], log)

    def _wait_until(self, name: str, secret: str, ready: Callable[[Connection], bool], otherwise: str) -> None:
        """Wait until the process of this name is ready. Raises if it ends first, or with `otherwise` if it is late."""
        from deborgen.connection import Connection

        connection = Connection(self.url, secret, patience=0)
        deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
        while time.monotonic() < deadline:
            if self.processes[name].poll() is not None:
                raise self._error_of_ended(name)
            if ready(connection):
                return
            time.sleep(0.05)
        raise Unreachable(otherwise, f"see {self.log(name)}")

    def _error_of_ended(self, name: str) -> DeborgenError:
        """How the process of this name ended, with the last line of its log."""
        log = self.log(name)
        lines = log.read_text("utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "its log is empty"
        code = self.processes[name].returncode
        if code == 0:
            how = "ended because another process stopped it"
        else:
            how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended unexpectedly: {last[-500:]}"
        return DeborgenError(f"the {name} {how}", f"see {log}")


def _knows_our_token(connection: Connection) -> bool:
    """Whether the coordinator that answers knows our token. If not, it is somebody else's."""
    from deborgen_shared import contract

    with contextlib.suppress(DeborgenError):
        connection.call(contract.ME)
        return True
    return False


def _our_worker_is_open(connection: Connection) -> bool:
    from deborgen_shared import contract

    with contextlib.suppress(DeborgenError):
        workers = connection.call(contract.LIST_WORKERS).items
        return any(worker.name == worker_name() and worker.state == WorkerState.OPEN for worker in workers)
    return False
