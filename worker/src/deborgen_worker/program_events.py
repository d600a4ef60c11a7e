"""Sends the events that a program wrote: each once, in order, and never so that they hold up anything for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from deborgen_shared.client.transport import Refused
from deborgen_shared.errors import Code
from deborgen_shared.program_events import EVENTS_PER_REQUEST
from deborgen_worker.coordinator import Coordinator

if TYPE_CHECKING:
    from deborgen_worker.execution import Execution

#: For a running job at most this many requests are made in a row, so that the other jobs have their turn.
REQUESTS_IN_A_ROW = 4
#: What is wrong with events that may be right without one of them.
UNFIT = frozenset({Code.MALFORMED.status, Code.TOO_LARGE.status})
#: A refusal that is about the attempt or the worker, and not about the events.
NOT_ABOUT_EVENTS = frozenset({Code.STALE_ATTEMPT, Code.SUPERSEDED, Code.UNAUTHENTICATED, Code.FORBIDDEN})


def send(
    coordinator: Coordinator, attempt: Execution, session: str, say: Callable[[str], None], *, ended: bool = False
) -> bool:
    """Send what the coordinator does not have; of a job that has ended, all of it. Whether anything was sent.

    The caller holds the attempt's `log_lock`, and handles what is refused for the attempt's sake. An event that the
    coordinator does not take for its own sake is left out. Should it take none, they are given up, in words.
    """
    file, most, requests = attempt.events, EVENTS_PER_REQUEST, 0
    while (ended or requests < REQUESTS_IN_A_ROW) and (events := file.batch(ended)[:most]):
        requests += 1
        try:
            file.sent = coordinator.events(attempt.id, file.sent, events, session)
            most = EVENTS_PER_REQUEST
        except Refused as refused:
            if refused.code in NOT_ABOUT_EVENTS:
                raise
            if refused.status in UNFIT and len(events) > 1:
                most = len(events) // 2
            elif refused.status in UNFIT and events != [None]:
                say(f"event {file.sent} of {attempt.id} is not taken, and left out: {refused.message}")
                file.left_out = file.sent
            else:
                say(f"the events of {attempt.id} are not taken, and given up: {refused.message}")
                file.given_up = True
    return requests > 0
