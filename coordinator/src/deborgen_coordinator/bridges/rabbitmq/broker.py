"""RabbitMQ: the names there, and how a connection is opened and a message is published."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pika
from pika.exceptions import AMQPError, NackError, UnroutableError

EXCHANGE = "deborgen"
EXECUTE_QUEUE, EXECUTE = "execute.queue", "execute"
STATUS_QUEUE, STATUS = "status.queue", "status"
DEAD = "execute.dead"

#: A broker that is silent for about twice as long is given up.
HEARTBEAT_SECONDS = 10
#: RabbitMQ blocks publishers while its memory or disk is short. After this many seconds the connection is given up.
BLOCKED_SECONDS = 20
PERSISTENT = 2

#: What can go wrong with a connection. A new one is opened then.
FAILURES: tuple[type[Exception], ...] = (AMQPError, OSError)

logging.getLogger("pika").setLevel(logging.CRITICAL)


def connect(url: str) -> Any:
    """A connection that the calling thread must keep pumping."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = HEARTBEAT_SECONDS
    parameters.blocked_connection_timeout = BLOCKED_SECONDS
    parameters.socket_timeout = parameters.stack_timeout = 5
    return pika.BlockingConnection(parameters)


def declare(channel: Any) -> None:
    """Declare everything by its name. What exists already stays as it is."""
    channel.exchange_declare(EXCHANGE, "direct", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    channel.queue_declare(EXECUTE_QUEUE, durable=True, arguments=dead)
    channel.queue_bind(EXECUTE_QUEUE, EXCHANGE, EXECUTE)
    declare_outgoing(channel)


def declare_outgoing(channel: Any) -> None:
    channel.queue_declare(STATUS_QUEUE, durable=True)
    channel.queue_bind(STATUS_QUEUE, EXCHANGE, STATUS)
    channel.queue_declare(DEAD, durable=True)


def publish(channel: Any, exchange: str, key: str, body: bytes, properties: Any) -> None:
    """Return when RabbitMQ has taken charge of the message. `channel` must have been told to confirm deliveries.

    If somebody has removed the queue, it is declared again. Raises one of `FAILURES`.
    """
    properties.delivery_mode = PERSISTENT
    try:
        channel.basic_publish(exchange, key, body, properties, mandatory=True)
    except UnroutableError:
        declare_outgoing(channel)
        channel.basic_publish(exchange, key, body, properties, mandatory=True)


def pause(seconds: float, goes_on: Callable[[], bool]) -> None:
    """Wait this long, or until the bridge stops."""
    end = time.monotonic() + seconds
    while goes_on() and time.monotonic() < end:
        time.sleep(0.1)


def spoken(failure: Exception) -> str:
    """Why there is no connection, in words. pika leaves the text of many of its exceptions empty."""
    if isinstance(failure, NackError | UnroutableError):
        return "it did not accept a message"
    return str(failure) or type(failure).__name__


class Lock:
    """The right to publish statuses, which one of several bridges has: a queue that only its connection may use.

    RabbitMQ removes the queue when the connection ends, so the right cannot outlive it.
    """

    def __init__(self, name: str) -> None:
        self.queue = f"deborgen.bridge.{name}"

    def take(self, connection: Any, wait: Callable[[], bool]) -> bool:
        """Take the lock as soon as it is free; False if `wait` says that the bridge stops."""
        while wait():
            channel = connection.channel()
            try:
                channel.queue_declare(self.queue, exclusive=True)
            except pika.exceptions.ChannelClosedByBroker as closed:
                if closed.reply_code != 405:
                    raise
                connection.sleep(0.5)
            else:
                return True
        return False
