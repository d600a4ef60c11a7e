"""Takes messages from RabbitMQ, and acknowledges them when the desk says so. One thread, with a connection of its own.

RabbitMQ closes a channel on which a message was not acknowledged for 30 minutes. That is routine here, because a job
may wait for days: the intake opens a new one, and the same messages come again under the same keys.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

import pika

from deborgen_shared.client.backoff import BackOff

from . import broker
from .desk import Decision, Delivery, Desk, NobodyFits, Refuse
from .orders import PROBLEMS_HEADER
from .settings import MOST_WAITING

log = logging.getLogger("deborgen.rabbitmq")

#: The thread looks this often whether it is to stop.
PUMP_SECONDS = 0.5
#: The problems in a header are cut to this many bytes, and the message's own headers are dropped if there are too many:
#: all headers of a message must fit into one frame.
MOST_PROBLEMS, MOST_HEADERS = 16_384, 65_536


#: The properties of a message that its dead letter has too.
KEPT = (
    "content_type", "content_encoding", "message_id", "correlation_id", "reply_to", "timestamp", "type", "app_id",
)  # fmt: skip


class Intake:
    """`decide` may be called from any thread; everything else happens in the thread of `run`."""

    def __init__(self, url: str, prefetch: int, goes_on: Callable[[], bool]) -> None:
        self._url, self._prefetch, self._goes_on = url, prefetch, goes_on
        self.desk: Desk
        self._connection: Any = None
        self._channel: Any = None
        #: Confirms what is published on it.
        self._outgoing: Any = None
        #: The number of the current channel. Older decisions are about messages that RabbitMQ delivers again.
        self._number = 0

    def run(self) -> None:
        """Take messages until the bridge stops, on one connection after the other."""
        trouble = BackOff(first=0.3, most=10.0)
        while self._goes_on():
            try:
                self._consume(trouble)
            except broker.FAILURES as failure:
                log.warning("no connection to RabbitMQ: %s; it is tried again", broker.spoken(failure))
            except Exception:
                log.exception("this is a bug in the bridge; it goes on")
            self._number += 1
            self.desk.forget(self._number)
            self._close()
            if self._goes_on():
                broker.pause(trouble.after_failure(), self._goes_on)

    def _consume(self, trouble: BackOff) -> None:
        self._connection = broker.connect(self._url)
        self._outgoing = self._connection.channel()
        self._outgoing.confirm_delivery()
        broker.declare(self._outgoing)
        while self._goes_on():
            channel = self._channel = self._connection.channel()
            # For the whole channel, because only this limit can be changed later.
            channel.basic_qos(prefetch_count=self._prefetch, global_qos=True)
            channel.basic_consume(broker.EXECUTE_QUEUE, self._deliver)
            trouble.reset()
            log.info("taking jobs from %s", broker.EXECUTE_QUEUE)
            while self._goes_on() and channel.is_open and channel.consumer_tags:
                self._connection.process_data_events(time_limit=PUMP_SECONDS)
            if not self._goes_on():
                self._connection.process_data_events(time_limit=0)  # what was decided meanwhile
                return
            if channel.is_open:
                channel.close()
            log.info("RabbitMQ closed the channel or removed the queue; taking jobs again")
            self._number += 1
            self.desk.forget(self._number)
            broker.declare(self._outgoing)

    def _close(self) -> None:
        """Messages that were not acknowledged go back into the queue."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            with contextlib.suppress(*broker.FAILURES):
                connection.close()

    def _deliver(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.desk.take(Delivery(self._number, method.delivery_tag, body, properties))

    def decide(self, decision: Decision) -> None:
        connection = self._connection
        if connection is not None and connection.is_open:
            with contextlib.suppress(*broker.FAILURES):  # the connection was closed meanwhile: the messages come again
                connection.add_callback_threadsafe(lambda: self._settle(decision))

    def _settle(self, decision: Decision) -> None:
        if not self._channel.is_open:
            return
        if isinstance(decision, NobodyFits):
            limit = self._prefetch + min(decision.messages, MOST_WAITING)
            self._channel.basic_qos(prefetch_count=limit, global_qos=True)
        elif decision.delivery.channel == self._number:
            if isinstance(decision, Refuse):
                self._put_aside(decision)
            self._channel.basic_ack(decision.delivery.tag)

    def _put_aside(self, refused: Refuse) -> None:
        """Keep the message among the dead letters, with its problems, and say so in a status. Then it may be
        acknowledged. A bridge that ends in between does this twice."""
        delivery = refused.delivery
        broker.publish(self._outgoing, "", broker.DEAD, delivery.body, dead_letter(delivery.properties, refused))
        given = delivery.properties
        status = {"state": "refused", "message_id": refused.key, "problems": refused.problems}
        properties = pika.BasicProperties(
            content_type="application/json", type="refused", message_id=f"refused-{refused.key}"[:200],
            correlation_id=given.correlation_id, reply_to=given.reply_to, app_id="deborgen",
        )  # fmt: skip
        body = json.dumps(status).encode()
        broker.publish(self._outgoing, broker.EXCHANGE, broker.STATUS, body, properties)


def dead_letter(given: Any, refused: Refuse) -> Any:
    """The properties of a refused message: its own, and what is wrong with it."""
    problems = json.dumps(refused.problems)
    while len(problems) > MOST_PROBLEMS:
        refused.problems[:] = refused.problems[: len(refused.problems) // 2] or [
            {"path": "", "message": refused.problems[0]["message"][:1000], "hint": ""}
        ]
        problems = json.dumps(refused.problems)
    made = pika.BasicProperties(headers={**(given.headers or {}), PROBLEMS_HEADER: problems})
    for name in KEPT:
        setattr(made, name, getattr(given, name))
    if sum(map(len, made.encode())) > MOST_HEADERS:
        made.headers = {PROBLEMS_HEADER: problems}
    return made
