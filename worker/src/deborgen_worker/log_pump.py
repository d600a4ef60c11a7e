"""Sends what jobs write, output and events: while they run, and the rest of the events once they have ended."""

from __future__ import annotations

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.errors import Code
from deborgen_shared.program_events import EVENTS_PER_REQUEST
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Ending
from deborgen_worker.contact import Line
from deborgen_worker.execution import Execution
from deborgen_worker.heartbeat import Heart
from deborgen_worker.steps import Event, StopAsked

#: The most bytes of a log in one request.
LOG_PART = 1 << 20
#: For a running job at most this many requests with events are made in a row, so that the other jobs have their turn.
REQUESTS_IN_A_ROW = 4
#: What is wrong with events that may be right without one of them.
UNFIT = frozenset({Code.MALFORMED.status, Code.TOO_LARGE.status})
#: A refusal that is about the attempt or the worker, and not about the events.
NOT_ABOUT_EVENTS = frozenset({Code.STALE_ATTEMPT, Code.SUPERSEDED, Code.UNAUTHENTICATED, Code.FORBIDDEN})


class LogPump:
    """Sends what running jobs write, output and events, so that people see it at most a second later."""

    def __init__(self, agent: Agent, line: Line, heart: Heart) -> None:
        self._agent, self._line, self._heart = agent, line, heart
        self._not_before = 0.0

    def retry(self) -> None:
        """The coordinator is there again: do not wait any longer."""
        self._not_before = 0.0

    def step(self) -> None:
        """Send what every running attempt has newly written, and give disk back for what will never be sent."""
        running = self._agent.look(
            lambda machine, executions: [executions[name] for name in machine.attempts if self._agent.is_running(name)]
        )
        stale: list[str] = []
        superseded: list[Event] = []
        for attempt in running:
            with attempt.log_lock:
                if not self._agent.is_running(attempt.id):
                    continue
                attempt.log.trim()
                if self._agent.clock() < self._not_before:
                    continue
                try:
                    self._send(attempt)
                    if send_events(self._line, attempt):
                        self._line.contact.ok("log")
                except Unreachable as error:
                    self._not_before = self._agent.clock() + self._line.contact.failed("log", error)
                except Refused as refused:
                    if refused.code == Code.STALE_ATTEMPT:
                        stale.append(attempt.id)
                    elif refused.code == Code.SUPERSEDED:
                        superseded.append(StopAsked(attempt.id, Ending.STALE))
        if superseded:
            self._agent.handle(superseded)
        for name in stale:
            self._heart.ask_about(name)

    def _send(self, attempt: Execution) -> None:
        for _ in range(16):
            data = attempt.log.read(attempt.log_sent, LOG_PART)
            if not data or not self._agent.is_running(attempt.id):  # once it is over, `Outbox` sends the rest
                return
            attempt.log_sent = self._line.coordinator.log(attempt.id, attempt.log_sent, data, self._line.session)
            self._line.contact.ok("log")


def send_events(line: Line, attempt: Execution, *, ended: bool = False) -> bool:
    """Send the events that the coordinator does not have; of a job that has ended, all. Whether anything was sent.

    Each is sent once, in order, and never so that they hold up anything for ever. The caller holds the attempt's
    `log_lock`, and handles what is refused for the attempt's sake. An event that the coordinator does not take for its
    own sake is left out. Should it take none, they are given up, in words.
    """
    file, most, requests = attempt.events, EVENTS_PER_REQUEST, 0
    while (ended or requests < REQUESTS_IN_A_ROW) and (events := file.batch(ended)[:most]):
        requests += 1
        try:
            file.sent = line.coordinator.events(attempt.id, file.sent, events, line.session)
            most = EVENTS_PER_REQUEST
        except Refused as refused:
            if refused.code in NOT_ABOUT_EVENTS:
                raise
            if refused.status in UNFIT and len(events) > 1:
                most = len(events) // 2
            elif refused.status in UNFIT and events != [None]:
                line.say(f"event {file.sent} of {attempt.id} is not taken, and left out: {refused.message}")
                file.left_out = file.sent
            else:
                line.say(f"the events of {attempt.id} are not taken, and given up: {refused.message}")
                file.given_up = True
    return requests > 0
