"""`deborgen up`: a coordinator and a worker on this machine, as children of one process that looks after them.

What it keeps lies in one folder, so jobs and results outlive it: the next `up` goes on where this one stopped. When it
ends, however it ends, its children end, too.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from deborgen import children, runtime
from deborgen.errors import DeborgenError, NotPossible, Unreachable
from deborgen.places import data_dir, write_private

PORT = 8765
HEALTHY_WITHIN_SECONDS = 30.0
STOPPED_WITHIN_SECONDS = 20.0

#: A worker that is stopped with `down` gives back what it runs after this long; the jobs go on with the next `up`.
DRAIN = "2s"

Runner = Literal["podman", "subprocess"]


class NotInstalled(DeborgenError):
    exit_code = 1


@dataclass(frozen=True)
class Plan:
    """What `up` is going to start."""

    data_dir: Path
    port: int
    runner: Runner
    why_not_podman: str = ""
    cpus: str | None = None
    memory: str | None = None


def default_data_dir() -> Path:
    return data_dir() / "up"


def require_parts() -> None:
    missing = [name for name in ("deborgen_coordinator", "deborgen_worker") if find_spec(name) is None]
    if missing:
        raise NotInstalled("the coordinator and the worker are not installed here", "pip install 'deborgen[up]'")


def plan(folder: Path | None, port: int | None, runner: str, cpus: str | None, memory: str | None) -> Plan:
    """Decide what can be decided before anything starts."""
    require_parts()
    reason = "" if runner == "subprocess" else why_not_podman()
    if runner == "podman" and reason:
        raise NotPossible(f"Podman does not work here: {reason}", "deborgen up --runner subprocess does without")
    chosen: Runner = "subprocess" if reason or runner == "subprocess" else "podman"
    return Plan((folder or default_data_dir()).absolute(), port or free_port(), chosen, reason, cpus, memory)


def why_not_podman() -> str:
    """Why containers cannot be run here, in a few words; empty when they can."""
    if shutil.which("podman") is None:
        return "it is not installed"
    try:
        done = subprocess.run(
            ["podman", "info", "--format", "{{.Host.OCIRuntime.Name}}"],
            capture_output=True,
            text=True,
            timeout=20,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "`podman info` does not answer"
    except OSError as why:
        return str(why)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["`podman info` fails"])[-1][:200]


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


def worker_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().split(".")[0]).strip("-._")[:63] or "local"


def person_name() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "me"
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).strip("-._")[:63] or "me"


@dataclass
class Pool:
    """The running pair. `start`, then `wait`; `stop` in every case."""

    plan: Plan
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.plan.port}"

    def start(self) -> runtime.Runtime:
        """Start both, and return when they answer. What an `up` that was killed left behind is ended first."""
        folder = self.plan.data_dir
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        children.end_leftovers(runtime.read())
        admin = self._token("admin", person_name())
        worker = self._token("worker", worker_name())
        serve = [
            "deborgen_coordinator", "serve", "--listen", f"127.0.0.1:{self.plan.port}",
            "--data-dir", str(folder / "coordinator"),
        ]  # fmt: skip
        self._spawn("coordinator", serve)
        self._until_healthy()
        run = [
            "deborgen_worker", "run", "--coordinator", self.url, "--name", worker_name(),
            "--token-file", str(worker), "--state-dir", str(folder / "worker"),
            "--runner", "both" if self.plan.runner == "podman" else "subprocess", "--drain-grace", DRAIN,
        ]  # fmt: skip
        for name in ("cpus", "memory"):
            if value := getattr(self.plan, name):
                run += [f"--{name}", value]
        self._spawn("worker", run)
        state = runtime.Runtime(
            self.url, admin.read_text("utf-8").strip(), os.getpid(), str(folder), worker_name(), self.plan.runner,
            {name: process.pid for name, process in self.processes.items()},
        )  # fmt: skip
        self._until_open(state)
        runtime.write(state)
        return state

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

    def _token(self, role: str, name: str) -> Path:
        """The file of a token, made at the first `up` and kept with the data that it belongs to."""
        path = self.plan.data_dir / "coordinator" / f"{role}-{name}.token"
        if path.exists():
            return path
        command = [
            sys.executable, "-m", "deborgen_coordinator", "token", "create", "--role", role, "--name", name,
            "--data-dir", str(self.plan.data_dir / "coordinator"),
        ]  # fmt: skip
        done = subprocess.run(
            command, env=children.environment(), capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise NotPossible(f"no token could be made: {done.stderr.strip()[-500:]}")
        write_private(path, done.stdout.strip() + "\n")
        return path

    def _spawn(self, name: str, arguments: list[str]) -> None:
        with self.log(name).open("ab") as log:
            self.processes[name] = children.spawn([sys.executable, "-m", *arguments], log)

    def _until_healthy(self) -> None:
        from deborgen.connection import Connection
        from deborgen_shared.messages import Health

        connection = Connection(self.url, "", patience=0)
        for _ in self._tries("coordinator"):
            with contextlib.suppress(DeborgenError):
                connection.get("/health", Health)
                return
        raise Unreachable("the coordinator did not come up in time", f"see {self.log('coordinator')}")

    def _until_open(self, state: runtime.Runtime) -> None:
        from deborgen.connection import Connection
        from deborgen_shared.messages import Worker

        connection = Connection(state.url, state.token, patience=0)
        for _ in self._tries("worker"):
            for worker in connection.whole("/v1/workers", Worker):
                if worker.name == state.worker and worker.state == "open":
                    return
        raise Unreachable("the worker did not join in time", f"see {self.log('worker')}")

    def _tries(self, name: str) -> Iterator[None]:
        deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
        while time.monotonic() < deadline:
            if self.processes[name].poll() is not None:
                raise self._died(name)
            yield
            time.sleep(0.05)

    def _died(self, name: str) -> DeborgenError:
        log = self.log(name)
        lines = log.read_text("utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        return DeborgenError(f"the {name} ended: {last[-500:]}", f"see {log}")


def run(plan: Plan, on_up: Callable[[runtime.Runtime], None]) -> None:
    """Be up: says so once both answer, then stays until a signal or the end of a child."""
    with runtime.hold() as ours:
        if not ours:
            raise already_up()
        pool = Pool(plan)
        try:
            with children.interruptible():
                on_up(pool.start())
                pool.wait()
        finally:
            pool.stop()


def already_up() -> NotPossible:
    state = runtime.read()
    where = f" at {state.url}" if state else ""
    return NotPossible(f"deborgen is up already{where}", "deborgen down ends it")


def detach(arguments: list[str], folder: Path) -> runtime.Runtime:
    """Start `deborgen up` as a process of its own, and return when it is up."""
    if runtime.is_locked():
        raise already_up()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / "up.log"
    with log.open("wb") as out:
        process = children.spawn([sys.executable, "-m", "deborgen", "up", *arguments], out, own_session=True)
    deadline = time.monotonic() + 2 * HEALTHY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        state = runtime.find()
        if state and state.pid == process.pid:
            return state
        if process.poll() is not None:
            said = log.read_text("utf-8", errors="replace").strip().removeprefix("error: ")
            raise NotPossible(said or f"it ended without a word; see {folder}")
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    raise Unreachable("it did not come up in time", f"see {log}")


def down() -> runtime.Runtime | None:
    """End the `up` of this person and wait until it is gone. None when nothing was up."""
    state = runtime.find()
    if state is None:
        leftovers = runtime.read()
        children.end_leftovers(leftovers)
        runtime.clear()
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + 2 * STOPPED_WITHIN_SECONDS + 5
    while runtime.is_locked():
        if time.monotonic() > deadline:
            raise NotPossible(f"process {state.pid} does not end", f"kill -9 {state.pid}, then deborgen down again")
        time.sleep(0.05)
    return state
