"""Send the output and the events of jobs while they run, and the remaining events once they have ended."""

from __future__ import annotations

from collections.abc import Callable

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.errors import Code
from deborgen_shared.program_events import EVENTS_PER_REQUEST
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import StopCause
from deborgen_worker.contact import Link
from deborgen_worker.execution import Execution
from deborgen_worker.heartbeat import HeartbeatLoop
from deborgen_worker.steps import AttemptEvent, StopAsked
from deborgen_worker.workspace import progress_of

#: Send at most this many bytes of a log per request.
LOG_PART_BYTES = 1 << 20
#: Send at most this many requests with events in a row for one running job, so that other jobs get their share.
REQUESTS_IN_A_ROW = 4
#: HTTP statuses that a single event may cause. The other events of the request may then still be accepted.
MALFORMED_STATUSES = frozenset({Code.MALFORMED.status, Code.TOO_LARGE.status})
#: Refusals that concern the attempt or the worker, not the events.
NOT_ABOUT_EVENTS = frozenset({Code.STALE_ATTEMPT, Code.SUPERSEDED, Code.UNAUTHENTICATED, Code.FORBIDDEN})


class LogPump:
    """Sends the output and the events of running jobs, so that people see them within about a second."""

    def __init__(
        self, agent: Agent, link: Link, heartbeats: HeartbeatLoop, on_progress: Callable[[], None] = lambda: None
    ) -> None:
        self._agent, self._link, self._heartbeats, self._on_progress = agent, link, heartbeats, on_progress
        self._not_before = 0.0

    def retry(self) -> None:
        """Retry now, because the coordinator answers again."""
        self._not_before = 0.0

    def step(self) -> None:
        """Send the new output and events of running attempts, and free the disk space of output that is not sent."""
        running = self._agent.read_state(
            lambda machine, executions: [executions[name] for name in machine.attempts if self._agent.is_running(name)]
        )
        before = [attempt.progress for attempt in running]
        for attempt in running:  # here, so that no heartbeat ever waits for a job's file
            share, message = progress_of(attempt.launch.workspace)
            attempt.progress = share, attempt.mask.apply_to_text(message)
        if before != [attempt.progress for attempt in running]:
            self._on_progress()
        stale: list[str] = []
        superseded: list[AttemptEvent] = []
        for attempt in running:
            with attempt.log_lock:
                if not self._agent.is_running(attempt.id):
                    continue
                attempt.log.trim()
                if self._agent.clock() < self._not_before:
                    continue
                try:
                    self._send(attempt)
                    if send_events(self._link, attempt):
                        self._link.contact.ok("log")
                except NoAnswer as error:
                    self._not_before = self._agent.clock() + self._link.contact.failed("log", error)
                except Refused as refused:
                    if refused.code == Code.STALE_ATTEMPT:
                        stale.append(attempt.id)
                    elif refused.code == Code.SUPERSEDED:
                        superseded.append(StopAsked(attempt.id, StopCause.STALE))
        if superseded:
            self._agent.handle(superseded)
        for name in stale:
            self._heartbeats.ask_about(name)

    def _send(self, attempt: Execution) -> None:
        for _ in range(16):
            data = attempt.log.read(attempt.log_sent, LOG_PART_BYTES)
            if not data or not self._agent.is_running(attempt.id):  # once it has ended, `Outbox` sends the rest
                return
            attempt.log_sent = self._link.coordinator.log(attempt.id, attempt.log_sent, data, self._link.session)
            self._link.contact.ok("log")


def send_events(link: Link, attempt: Execution, *, ended: bool = False) -> bool:
    """Send events that the coordinator lacks, all of them if the job has `ended`. Returns whether any were sent.

    Each event is sent once and in order. The caller holds the attempt's `log_lock`, and handles refusals that concern
    the attempt. An event that the coordinator refuses is left out. If it refuses for another reason, all remaining
    events are given up with a message, so that events never hold up a result forever.
    """
    file, most, requests = attempt.events, EVENTS_PER_REQUEST, 0
    while (ended or requests < REQUESTS_IN_A_ROW) and (events := file.batch(ended)[:most]):
        requests += 1
        try:
            file.sent = link.coordinator.events(attempt.id, file.sent, events, link.session)
            most = EVENTS_PER_REQUEST
        except Refused as refused:
            if refused.code in NOT_ABOUT_EVENTS:
                raise
            if refused.status in MALFORMED_STATUSES and len(events) > 1:
                most = len(events) // 2
            elif refused.status in MALFORMED_STATUSES and events != [None]:
                link.say(
                    f"the coordinator refused event {file.sent} of {attempt.id}, leaving it out: {refused.message}"
                )
                file.left_out = file.sent
            else:
                link.say(f"the coordinator refused the events of {attempt.id}, giving them up: {refused.message}")
                file.given_up = True
    return requests > 0
