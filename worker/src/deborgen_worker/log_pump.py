"""Sends what running jobs write while they run."""

from __future__ import annotations

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.errors import Code
from deborgen_worker import program_events
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Ending
from deborgen_worker.contact import Line
from deborgen_worker.execution import Execution
from deborgen_worker.heartbeat import Heart
from deborgen_worker.steps import Event, StopAsked

LOG_PART = 1 << 20


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
                    if program_events.send(self._line.coordinator, attempt, self._line.session, self._line.say):
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
