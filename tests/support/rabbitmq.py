"""A real RabbitMQ of the test's own, and the bridge as a process. Debian's package has everything; no user is changed.

The fixture `rabbitmq` is one broker for a module. A test that kills it starts it again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pika
import pytest

from support.coordinator import CoordinatorProcess, clean_environment
from support.waiting import wait_until

T = TypeVar("T")
logging.getLogger("pika").setLevel(logging.CRITICAL)
PROGRAMS = Path("/usr/lib/rabbitmq/bin")


#: Below the ports that the system gives to outgoing connections: one of those could take a port before the broker does.
PORTS = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found


class Broker:
    """A RabbitMQ server with its own Erlang port mapper, all on 127.0.0.1."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "home").mkdir(exist_ok=True)
        self.port, distribution, mapper = free_ports(3)
        lines = {"log.console": "false", "disk_free_limit.absolute": "1MB", "loopback_users": "none", **settings}
        (folder / "rabbitmq.conf").write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        (folder / "advanced.config").write_text("[{rabbit,[{channel_tick_interval,1000}]}].\n")
        (folder / "enabled_plugins").write_text("[].\n")
        self.environment = {
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(folder / "home"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null", "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution), "ERL_EPMD_PORT": str(mapper), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(folder / "db"), "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"), "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none",
        }  # fmt: skip
        self.url = f"amqp://127.0.0.1:{self.port}/%2F"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Broker:
        """Start it, and return when it answers. On a machine that is very busy, Erlang may give its mapper up too
        early: then it is started again."""
        self._run("epmd", "-relaxed_command_check", "-daemon")
        wait_until(lambda: self._run("epmd", "-names").returncode == 0, what="Erlang's port mapper to answer")
        for tries_left in (2, 1, 0):
            with (self.folder / "output").open("ab") as output:
                self._process = subprocess.Popen(
                    [PROGRAMS / "rabbitmq-server"], env=self.environment, stdout=output, stderr=output,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
            process = self._process
            wait_until(
                lambda: self.answers() or process.poll() is not None,  # noqa: B023
                120, "RabbitMQ to start", log=self.folder / "output",
            )  # fmt: skip
            if process.poll() is None:
                return self
            assert tries_left, (self.folder / "output").read_text()[-3000:]
        raise AssertionError("unreachable")

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, timeout=60)

    def answers(self) -> bool:
        try:
            pika.BlockingConnection(pika.URLParameters(self.url)).close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    def kill(self) -> None:
        """kill -9, as if the power failed."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self.kill()
        self._run("epmd", "-kill")

    def control(self, *words: str) -> str:
        done = subprocess.run(
            [PROGRAMS / "rabbitmqctl", *words], env=self.environment, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def holds(self, queue: str) -> int:
        """How many messages a queue has, with those that a consumer has not acknowledged."""
        lines = self.control("-q", "list_queues", "name", "messages").split("\n")
        return int(dict(line.split("\t") for line in lines if "\t" in line)[queue])

    def client(self) -> Client:
        return Client(self)


class Client:
    """Somebody who publishes jobs and reads statuses. It connects again by itself."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connection: Any = None
        self._channel: Any = None

    def _do(self, call: Callable[[Any], T]) -> T:
        """Call with an open channel. A connection that turns out to be lost is opened again, once."""
        for last in (False, True):
            try:
                if self._connection is None or not self._connection.is_open or not self._channel.is_open:
                    self._connection = pika.BlockingConnection(pika.URLParameters(self._broker.url))
                    self._channel = self._connection.channel()
                    self._channel.confirm_delivery()
                return call(self._channel)
            except (pika.exceptions.AMQPConnectionError, OSError):
                self._connection = None
                if last:
                    raise
        raise AssertionError("unreachable")

    def publish(self, body: Any, headers: dict[str, Any] | None = None, **properties: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        made = pika.BasicProperties(delivery_mode=2, headers=headers, **properties)
        self._do(lambda channel: channel.basic_publish("deborgen", "execute", data, made, mandatory=True))

    def size(self, queue: str) -> int:
        """How many messages are in a queue and not at a consumer; -1 if there is no such queue."""
        try:
            return int(self._do(lambda channel: channel.queue_declare(queue, passive=True).method.message_count))
        except pika.exceptions.ChannelClosedByBroker:
            return -1

    def purge(self) -> None:
        for queue in ("execute.queue", "status.queue", "execute.dead"):
            self._do(lambda channel, queue=queue: channel.queue_purge(queue))  # type: ignore[misc]

    def take(self, queue: str) -> tuple[Any, bytes] | None:
        """The next message, acknowledged: its properties and its body."""
        method, properties, body = self._do(lambda channel: channel.basic_get(queue, auto_ack=True))
        return (properties, body) if method else None

    def take_all(self, queue: str) -> list[tuple[Any, bytes]]:
        return list(iter(lambda: self.take(queue), None))

    def close(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.close()


class BridgeProcess:
    """`deborgen-coordinator rabbitmq`."""

    def __init__(self, folder: Path, broker: Broker, pool: CoordinatorProcess, **settings: Any) -> None:
        self.folder = folder / f"bridge-{uuid.uuid4().hex[:6]}"
        self.folder.mkdir(parents=True)
        self.log = self.folder / "bridge.log"
        token = self.folder / "token"
        token.write_text(pool.token("submitter", "queue"))
        self.settings = {
            "amqp": broker.url, "coordinator": pool.url, "token_file": token, "log_level": "info", **settings
        }  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BridgeProcess:
        return self if self.process else self.start()

    def __exit__(self, *error: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def start(self) -> BridgeProcess:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deborgen_coordinator", "rabbitmq", *flags], stdout=log, stderr=log,
                env=clean_environment(),
            )  # fmt: skip
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 30.0) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(seconds)

    def until_ready(self) -> BridgeProcess:
        """Start it if it was not started, and wait until it takes messages."""
        if self.process is None:
            self.start()
        wait_until(lambda: "taking jobs" in self.log.read_text(), what="the bridge to be ready", log=self.log)
        return self


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of a module share."""
    broker = Broker(tmp_path_factory.mktemp("rabbitmq"))
    broker.start()
    yield broker
    broker.stop()
