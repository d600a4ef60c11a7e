"""Heartbeats: they renew the leases, report progress, and bring the coordinator's orders."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping

import msgspec

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.errors import Code
from deborgen_shared.messages import FROZEN, SAVING, Heartbeat, Held, Metrics
from deborgen_shared.states import OLD_STATES, WORKING, WorkerState
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Collecting, Done, Following, Running, Stage, StopCause
from deborgen_worker.capacity import Amount
from deborgen_worker.contact import Link
from deborgen_worker.execution import Execution
from deborgen_worker.lifecycle import Machine
from deborgen_worker.reasons import without_host_paths

#: Stop running jobs after this many heartbeats in a row were refused because of the token.
REFUSALS_BEFORE_STOP = 2
#: HTTP statuses that a job's progress text may cause. The heartbeat is then sent once more without that text.
MALFORMED_STATUSES = frozenset({400, 413, 422})


class Superseded(Exception):
    """A newer session has replaced this one, or the coordinator does not know this one."""


class HeartbeatLoop:
    """One `step` sends one heartbeat. `measure` reads the machine's metrics."""

    def __init__(self, agent: Agent, link: Link, measure: Callable[[], Metrics | None] = lambda: None) -> None:
        self._agent, self._link, self._measure = agent, link, measure
        #: The images of the pool on this machine that the coordinator knows of.
        self.reported_images: list[str] | None = None
        self.interval = 10.0
        self.lease = 60.0
        #: Whether the coordinator knows that this worker is open. Until then it gives the worker no job.
        self.reported_open = True
        self._refused, self._refused_at = 0, float("-inf")
        self._wait, self._malformed = 1.0, False
        self._counting = threading.Lock()

    def registered(self, interval: float, lease: float) -> None:
        self.interval, self.lease = interval, lease

    def step(self) -> float:
        """Send one heartbeat for all attempts. Returns the seconds until the next one."""
        message = self._message(self._holding())
        message.free, message.metrics = self._agent.read_state(_free).message(), self._measure()
        images = self._agent.images()
        message.images = images if images != self.reported_images else None
        self._malformed = False
        if self._send(message):
            self.reported_images = images
        elif self._malformed:
            self._send(_plainest(message))
        return self._wait

    def ask_about(self, name: str) -> bool:
        """Name one attempt in a heartbeat now. Returns whether the coordinator answered.

        If the attempt's lease has expired, it is resumed if no other worker has its job, and stopped otherwise.
        """
        with contextlib.suppress(Superseded):  # the next heartbeat raises it again
            return self._send(self._message([Held(attempt=name)]))
        return False

    def _message(self, holding: list[Held]) -> Heartbeat:
        state, reason, until = self._agent.read_state(
            lambda machine, _: (machine.gate.state, machine.gate.reason, machine.gate.until)
        )
        words = without_host_paths(reason)[:2000]
        return Heartbeat(session=self._link.session, holding=holding, state=state, reason=words, until=until)  # type: ignore[arg-type]

    def _holding(self) -> list[Held]:
        now, lease_now = self._agent.clock(), self._agent.lease_clock()
        running: dict[str, Held] = {}

        def is_held(stage: Stage) -> bool:
            # If the result is arriving right now, the coordinator would call the attempt stale. Name it only if its
            # result has not been delivered for a while.
            if isinstance(stage, Done):
                return now - stage.ended > self.interval
            stop = stage.stop if isinstance(stage, Following | Running) else None
            stale = stop is not None and stop.cause is StopCause.STALE
            return not stale and not (isinstance(stage, Collecting) and stage.stale)

        def view(machine: Machine, executions: Mapping[str, Execution]) -> list[str]:
            for name, attempt in machine.attempts.items():
                if isinstance(stage := attempt.stage, Running):
                    held = Held(attempt=name, stopped_seconds=stage.stopped_seconds(now, lease_now))
                    held.began_seconds_ago = max(0.0, lease_now - stage.began) if stage.began else None
                    if stage.frozen_at is not None:
                        held.standing = FROZEN if stage.saving is None else SAVING
                    held.progress, held.message = executions[name].progress
                    running[name] = held
            return [name for name, attempt in machine.attempts.items() if is_held(attempt.stage)][:4096]

        return [running.get(name) or Held(attempt=name) for name in self._agent.read_state(view)]

    def _send(self, message: Heartbeat) -> bool:
        """Send a heartbeat and apply its answer. Returns whether there was one. Sets `_wait` for the next heartbeat."""
        sent = self._agent.lease_clock()
        try:
            answer = self._link.coordinator.heartbeat(message)
        except NoAnswer as error:
            self._wait = self._link.contact.failed("heartbeat", error, self.lease / 3 if message.holding else None)
            return False
        except Refused as refused:
            self._wait = self.when_refused(refused)
            return False
        self._link.contact.ok("heartbeat")
        self._wait = self.interval
        was_open, self.reported_open = self.reported_open, message.state in WORKING
        self._refused = 0
        self._agent.set_gate("token", "")
        orders = answer.orders
        self._agent.set_gate(
            "order", "drained by an admin" if orders.drain else "paused by an admin" if orders.pause else ""
        )
        if self.reported_open and not was_open:
            self._agent.request_work()
        wanted = answer.wanted
        if isinstance(wanted, msgspec.UnsetType):  # an older coordinator does not say what other machines could run
            wanted = [each.attempt for each in message.holding if each.standing == FROZEN]
        self._agent.apply_answers(answer.attempts, sent, wanted)
        return True

    def when_refused(self, refused: Refused) -> float:
        """Act on a refusal. Returns the seconds until the retry."""
        if refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        if refused.status in {401, 403}:
            self._count_refusal()
            self._agent.set_gate("token", f"the coordinator does not accept this worker's token: {refused.message}")
            return self.interval if self._refused < REFUSALS_BEFORE_STOP else min(60.0, self.interval * self._refused)
        self._malformed = refused.status in MALFORMED_STATUSES
        self._link.say(f"the coordinator refused a heartbeat: {refused.message}")
        return self.interval

    def _count_refusal(self) -> None:
        """Count one refusal per heartbeat, however many threads are refused at the same moment."""
        with self._counting:
            now = self._agent.clock()
            if now - self._refused_at < self.interval / 2:
                return
            self._refused, self._refused_at = self._refused + 1, now
        if self._refused == REFUSALS_BEFORE_STOP:
            self._link.say("the token is still not accepted, stopping all jobs")
            self._agent.stop_all(StopCause.STALE, "")


def _free(machine: Machine, _: object) -> Amount:
    """The resources for another job. There are none while every slot is taken, however little the jobs use."""
    return Amount() if machine.ledger.full else machine.ledger.free()


def _plainest(message: Heartbeat) -> Heartbeat:
    """The same heartbeat without anything that could be refused.

    No lease must be lost because of a job's progress text, an odd sensor, or a state that an older coordinator does not
    know.
    """
    state = WorkerState(message.state)
    return msgspec.structs.replace(
        message,
        holding=[Held(attempt=each.attempt, began_seconds_ago=each.began_seconds_ago) for each in message.holding],
        state=OLD_STATES.get(state, state),
        metrics=None,
        images=None,
    )
