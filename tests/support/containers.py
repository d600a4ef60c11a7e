"""Coordinator, workers and PostgreSQL as containers, run by testcontainers on Podman's Docker-compatible socket."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.compose import COORDINATOR, POSTGRES, WORKER, make_postgres, run
from support.podman import IMAGE, Podman
from support.published_pool import PublishedPool
from support.waiting import wait_until

SILENT_NAME_SERVER = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.53", 53))
print("listening", flush=True)
sys.stdin.read()
"""


@contextmanager
def use_of_testcontainers(podman: Podman) -> Iterator[None]:
    """Make testcontainers use this Podman. It reads these variables when it is first imported, so enter this before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{podman.socket}")
        patch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        patch.setenv("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
        patch.setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
        yield


class ContainerPool(PublishedPool):
    """A coordinator and its workers, each in a container. Containers are killed, stopped and cut off by name."""

    def __init__(self, podman: Podman, folder: Path, lease: float, heartbeat: float, *, postgres: bool = False) -> None:
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.network import Network

        super().__init__()
        self._podman, self._folder = podman, folder
        self._make = DockerContainer
        self.network = Network().create()
        self.coordinator = (
            DockerContainer(COORDINATOR)
            .with_network(self.network).with_network_aliases("coordinator").with_exposed_ports(8765)
            .with_env("DEBORGEN_LEASE_SECONDS", str(lease)).with_env("DEBORGEN_HEARTBEAT_SECONDS", str(heartbeat))
            .with_env("DEBORGEN_DEFAULT_IMAGE", IMAGE)
        )  # fmt: skip
        self.database: Any = None
        if postgres:
            self._start_database()
            self.coordinator.with_env("DEBORGEN_DATABASE", "postgresql://deborgen:sesame@postgres/deborgen")
        self.coordinator.start()
        self.workers: dict[str, Any] = {}
        wait_until(self.healthy, every=0.2)
        self.login(self.token("admin", "organiser"))

    def _start_database(self) -> None:
        make_postgres(self._folder)
        self.database = (
            self._make(POSTGRES).with_network(self.network).with_network_aliases("postgres")
            .with_kwargs(user="70:70").with_env("POSTGRES_USER", "deborgen").with_env("POSTGRES_DB", "deborgen")
            .with_env("POSTGRES_PASSWORD", "sesame").with_env("PGHOST", "/tmp")
        )  # fmt: skip
        self.database.start()
        wait_until(lambda: self.database.exec(["pg_isready", "-U", "deborgen"])[0] == 0, every=0.2)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.coordinator.get_exposed_port(8765)}"

    def token(self, role: str, name: str) -> str:
        code, said = self.coordinator.exec(["deborgen-coordinator", "token", "create", "--role", role, "--name", name])
        assert code == 0, said
        return str(said.decode().strip().splitlines()[-1])

    def add_worker(self, name: str) -> str:
        state = self._folder / name
        state.mkdir()
        (state / "token").write_text(self.token("worker", name))
        (state / "token").chmod(0o600)
        worker = (
            self._make(WORKER).with_network(self.network).with_kwargs(user="0:0", pid_mode="host")
            .with_env("DEBORGEN_WORKER_COORDINATOR", "http://coordinator:8765").with_env("DEBORGEN_WORKER_NAME", name)
            .with_env("DEBORGEN_WORKER_TOKEN_FILE", str(state / "token"))
            .with_env("DEBORGEN_WORKER_STATE_DIR", str(state / "state")).with_env("DEBORGEN_WORKER_CPUS", "1")
            .with_env("DEBORGEN_WORKER_MEMORY", "2GiB")
            .with_volume_mapping(str(self._podman.socket), "/run/podman/podman.sock", "rw")
            .with_volume_mapping(str(state), str(state), "rw")
        )  # fmt: skip
        worker.start()
        self.workers[name] = worker
        return name

    def container(self, name: str) -> str:
        holder = {**self.workers, "coordinator": self.coordinator, "postgres": self.database}[name]
        return str(holder.get_wrapped_container().id)

    def podman(self, verb: str, name: str, *words: str) -> str:
        return run("podman", verb, *words, self.container(name))

    def pause(self, name: str) -> None:
        """Freeze a container. The kernel may need more time than runc gives it on a busy machine, so ask again."""

        def is_frozen() -> bool:
            try:
                self.podman("pause", name)
            except AssertionError as error:
                if "unable to freeze" not in str(error):
                    raise
                return False
            return True

        wait_until(is_frozen, what=f"{name} to be frozen")

    def cut_off(self, name: str) -> None:
        run("podman", "network", "disconnect", self.network.name, self.container(name))

    def reconnect(self, name: str) -> None:
        run("podman", "network", "connect", self.network.name, self.container(name))

    def cut_connections(self, name: str) -> None:
        """Close a container's connections to the coordinator; it may open new ones at once."""
        process = self.podman("inspect", name, "-f", "{{.State.Pid}}")
        assert "ESTAB" in run("nsenter", "-t", process, "-n", "ss", "-K", "-tn", "dport", "=", ":8765")

    @contextmanager
    def silent_name_server(self, name: str) -> Iterator[None]:
        """Within the block, the container uses a name server that accepts every query and answers none."""
        process = self.podman("inspect", name, "-f", "{{.State.Pid}}")
        settings = Path(self.podman("inspect", name, "-f", "{{.ResolvConfPath}}"))
        before = settings.read_text()
        server = subprocess.Popen(
            ["nsenter", "-t", process, "-n", sys.executable, "-c", SILENT_NAME_SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"listening\n"
            settings.write_text("nameserver 127.0.0.53\n")
            yield
        finally:
            settings.write_text(before)
            server.communicate()  # it ends when its input is closed

    def close(self) -> None:
        for name, worker in self.workers.items():
            worker.stop()
            self._podman.remove_all(name)
        self.coordinator.stop()
        if self.database is not None:
            self.database.stop()
        self.network.remove()


@contextmanager
def container_pool(
    podman: Podman, folder: Path, lease: float = 6, heartbeat: float = 1, *, postgres: bool = False
) -> Iterator[ContainerPool]:
    pool = ContainerPool(podman, folder, lease, heartbeat, postgres=postgres)
    try:
        yield pool
    finally:
        pool.close()
