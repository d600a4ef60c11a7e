"""Renews the leases, carries progress up and orders down."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.errors import Code
from deborgen_shared.messages import Heartbeat, Held, Metrics
from deborgen_shared.states import FIRST_WORDS, WORKING, WorkerState
from deborgen_worker import workspace
from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Collecting, Done, Ending, Queued, Running, Stage
from deborgen_worker.capacity import Amount
from deborgen_worker.contact import Line
from deborgen_worker.execution import Execution
from deborgen_worker.lifecycle import Machine

#: After this many heartbeats that were refused for their token, what runs is stopped.
REFUSALS_BEFORE_STOP = 2
#: Statuses that a job's own progress text may cause: the heartbeat is sent once more without it.
UNFIT = frozenset({400, 413, 422})


class Superseded(Exception):
    """A newer session speaks for this worker now, or the coordinator does not know it: this one must end."""


class Heart:
    """One `step` is one heartbeat. `measure` says how the machine is doing."""

    def __init__(self, agent: Agent, line: Line, measure: Callable[[], Metrics | None] = lambda: None) -> None:
        self._agent, self._line, self._measure = agent, line, measure
        self.interval = 10.0
        self.lease = 60.0
        #: Whether the coordinator knows that this worker is open: it gives nothing to one that it believes paused.
        self.told_open = True
        self._refused, self._refused_at = 0, float("-inf")
        self._wait, self._unfit = 1.0, False
        self._counting = threading.Lock()

    def registered(self, interval: float, lease: float) -> None:
        self.interval, self.lease = interval, lease
        self._agent.set_lease(lease)

    def step(self) -> float:
        """Send one for everything that is held; the seconds until the next."""
        message = self._message(self._holding())
        message.free, message.metrics = self._agent.look(_free).message(), self._measure()
        self._unfit = False
        if not self._send(message) and self._unfit:
            self._send(_plainest(message))
        return self._wait

    def ask_about(self, name: str) -> bool:
        """Name one attempt now: one whose lease is over is taken up again if its job is nobody else's, or it stops.
        Whether there was an answer."""
        with contextlib.suppress(Superseded):  # the next heartbeat will say so
            return self._send(self._message([Held(attempt=name)]))
        return False

    def _message(self, holding: list[Held]) -> Heartbeat:
        state, reason, until = self._agent.look(
            lambda machine, _: (machine.gate.state, machine.gate.reason, machine.gate.until)
        )
        return Heartbeat(session=self._line.session, holding=holding, state=state, reason=reason[:2000], until=until)  # type: ignore[arg-type]

    def _holding(self) -> list[Held]:
        now, lease_now = self._agent.clock(), self._agent.lease_clock()
        running: dict[str, tuple[Path, Held]] = {}

        def is_held(stage: Stage) -> bool:
            # A result that is just being sent would be answered as stale: it is named again only if it is stuck.
            if isinstance(stage, Done):
                return now - stage.ended > self.interval
            stop = stage.stop if isinstance(stage, Queued | Running) else None
            stale = stop is not None and stop.ending is Ending.STALE
            return not stale and not (isinstance(stage, Collecting) and stage.stale)

        def view(machine: Machine, executions: Mapping[str, Execution]) -> list[str]:
            for name, attempt in machine.attempts.items():
                if isinstance(stage := attempt.stage, Running):
                    held = Held(attempt=name, stopped_seconds=stage.stopped_seconds(now, lease_now))
                    held.began_seconds_ago = max(0.0, lease_now - stage.began) if stage.began else None
                    if stage.frozen_at is not None:
                        held.standing = "frozen"
                    running[name] = (executions[name].launch.workspace, held)
            return [name for name, attempt in machine.attempts.items() if is_held(attempt.stage)][:4096]

        found = []
        for name in self._agent.look(view):
            folder, held = running.get(name, (None, Held(attempt=name)))
            if folder is not None:
                held.progress, held.message = workspace.progress_of(folder)
            found.append(held)
        return found

    def _send(self, message: Heartbeat) -> bool:
        """Whether it was answered. If so, the answer is acted on. `_wait` says when the next one is due."""
        sent = self._agent.lease_clock()
        try:
            answer = self._line.coordinator.heartbeat(message)
        except Unreachable as error:
            self._wait = self._line.contact.failed("heartbeat", error, self.lease / 3 if message.holding else None)
            return False
        except Refused as refused:
            self._wait = self.when_refused(refused)
            return False
        self._line.contact.ok("heartbeat")
        self._wait = self.interval
        was_open, self.told_open = self.told_open, message.state in WORKING
        self._refused = 0
        self._agent.keep("token", "")
        orders = answer.orders
        self._agent.keep(
            "order", "drained by an admin" if orders.drain else "paused by an admin" if orders.pause else ""
        )
        if self.told_open and not was_open:
            self._agent.refill()
        self._agent.apply_answers(answer.attempts, sent)
        return True

    def when_refused(self, refused: Refused) -> float:
        """What a refusal means; the seconds until the next try."""
        if refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        if refused.status in {401, 403}:
            self._count_refusal()
            self._agent.keep("token", f"the coordinator does not accept the token of this worker: {refused.message}")
            return self.interval if self._refused < REFUSALS_BEFORE_STOP else min(60.0, self.interval * self._refused)
        self._unfit = refused.status in UNFIT
        self._line.say(f"the coordinator refused a heartbeat: {refused.message}")
        return self.interval

    def _count_refusal(self) -> None:
        """One for each heartbeat, however many threads are refused at the same moment."""
        with self._counting:
            now = self._agent.clock()
            if now - self._refused_at < self.interval / 2:
                return
            self._refused, self._refused_at = self._refused + 1, now
        if self._refused == REFUSALS_BEFORE_STOP:
            self._line.say("the token is still not accepted: what runs is stopped")
            self._agent.stop_all(Ending.STALE, "")


def _free(machine: Machine, _: object) -> Amount:
    """What another job could have: nothing while every slot is taken, however little the others use."""
    return Amount() if machine.ledger.full else machine.ledger.free()


def _plainest(message: Heartbeat) -> Heartbeat:
    """The same, without all that may be refused.

    Neither what one job has written as its progress, nor an odd sensor, nor a state that an older coordinator does not
    know may cost the jobs their leases.
    """
    state = WorkerState(message.state)
    return msgspec.structs.replace(
        message,
        holding=[Held(attempt=each.attempt, began_seconds_ago=each.began_seconds_ago) for each in message.holding],
        state=FIRST_WORDS.get(state, state),
        metrics=None,
    )
