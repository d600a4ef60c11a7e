"""`deborgen-coordinator rabbitmq`: starts the bridge's three threads, and ends within ten seconds after TERM."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from importlib.metadata import version

from deborgen_shared.client.addresses import split_addresses
from deborgen_shared.client.transport import NoAnswer, Refused, Transport

from .broker import pause
from .desk import Desk
from .intake import Intake
from .pool import Pool, TokenOfFile
from .settings import BridgeSettings
from .statuses import Statuses

log = logging.getLogger("deborgen.rabbitmq")

#: What is in progress may take this long after TERM. The rest is left to RabbitMQ, unacknowledged.
ENDING_SECONDS = 5.0


def run_bridge(settings: BridgeSettings) -> None:
    """Run until TERM or INT."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    bridge = Bridge(settings, lambda: not stopped.is_set())
    log.info("the bridge %s is ready", settings.name)
    threads = bridge.start()
    stopped.wait()
    log.info("stopping")
    end = time.monotonic() + ENDING_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


class Bridge:
    def __init__(self, settings: BridgeSettings, goes_on: Callable[[], bool]) -> None:
        self._settings, self._goes_on = settings, goes_on
        self._token = TokenOfFile(settings.token_file)
        self._intake = Intake(settings.amqp, settings.prefetch, goes_on)
        desk_pool = self._pool()
        self._desk = self._intake.desk = Desk(desk_pool, settings.name, self._intake.decide)
        url = settings.public_url or split_addresses(settings.coordinator)[0]
        self._statuses = Statuses(self._pool(), settings.amqp, settings.name, url, goes_on)
        self._first = desk_pool

    def _pool(self) -> Pool:
        agent = f"deborgen-rabbitmq/{version('deborgen-coordinator')}"
        return Pool(Transport(self._settings.coordinator, self._token, agent=agent, connections=2))

    def start(self) -> list[threading.Thread]:
        """Start the threads. They are daemons: a call that hangs does not keep the process."""
        wanted = {"intake": self._take, "desk": lambda: self._desk.run(self._goes_on), "statuses": self._statuses.run}
        threads = [threading.Thread(target=body, name=name, daemon=True) for name, body in wanted.items()]
        for thread in threads:
            thread.start()
        return threads

    def _take(self) -> None:
        """Take messages, but only once there is a place in the history: no status of theirs may be missed."""
        while self._goes_on() and not self._has_place():
            pause(0.3, self._goes_on)
        if self._goes_on():
            self._intake.run()

    def _has_place(self) -> bool:
        try:
            return self._first.cursor(self._settings.name) is not None
        except (NoAnswer, Refused):
            return False  # the statuses say so in the log
