"""Bugs in the bridge to RabbitMQ."""

from __future__ import annotations

import uuid
from typing import Any

from planted.bug import SERVER, Planted
from planted.patch import Patch, becomes

RABBITMQ = "deborgen_coordinator.bridges.rabbitmq"
FAULT = f"{SERVER}/test_rabbitmq.py::test_fault_83"


def another_key_each_time(original: Any) -> Any:
    return lambda body, properties: uuid.uuid4().hex


def store_the_place_first(original: Any) -> Any:
    def statuses(self: Any, page: Any) -> Any:
        if page:
            found = self._pool.cursor(self._bridge)
            self._pool.move_cursor(self._bridge, page[-1].seq, found.seq)
        yield from original(self, page)

    return statuses


def ask_for_the_lock_once(original: Any) -> Any:
    def take(self: Any, connection: Any, wait: Any) -> bool:
        once = iter([True])
        if original(self, connection, lambda: next(once, False)):
            return True
        while wait():
            connection.sleep(0.5)
        return False

    return take


PLANTED: list[Planted] = [
    Planted(
        "a message that is delivered again has another key",
        (Patch(f"{RABBITMQ}.orders:key_of", another_key_each_time),),
        (f"{FAULT}_the_bridge_is_killed_at_each_step",),
    ),
    Planted(
        "the place in the history is stored before the statuses are published",
        (Patch(f"{RABBITMQ}.statuses:StatusMaker.statuses", store_the_place_first),),
        (f"{FAULT}_the_bridge_is_killed_at_each_step",),
    ),
    Planted(
        "statuses are not kept on RabbitMQ's disk",
        (Patch(f"{RABBITMQ}.broker:PERSISTENT", becomes(1)),),
        (f"{FAULT}_rabbitmq_is_blocked_killed_and_started_again",),
    ),
    Planted(
        "a bridge never takes over from another one",
        (Patch(f"{RABBITMQ}.broker:Lock.take", ask_for_the_lock_once),),
        (f"{FAULT}_two_bridges_take_turns_and_one_goes_on_alone",),
        seconds=180,
    ),
]
