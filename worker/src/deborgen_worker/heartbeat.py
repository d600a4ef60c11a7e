"""Renews the leases, carries progress up and orders down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.errors import Code
from deborgen_shared.messages import Heartbeat, Held, Metrics
from deborgen_shared.states import FIRST_WORDS, WORKING, WorkerState
from deborgen_worker import workspace
from deborgen_worker.agent import Agent
from deborgen_worker.attempt import Attempt, Ending, Stage
from deborgen_worker.capacity import Amount
from deborgen_worker.contact import Contact
from deborgen_worker.coordinator import Coordinator

#: So many heartbeats may be refused for their token before what runs is stopped.
REFUSALS_BEFORE_STOP = 2
#: Statuses that a job's own progress text may cause: the heartbeat is sent once more without it.
UNFIT = frozenset({400, 413, 422})


class Superseded(Exception):
    """A newer session speaks for this worker now, or the coordinator does not know it: this one must end."""


class Heart:
    """One `step` is one heartbeat."""

    def __init__(self, agent: Agent, coordinator: Coordinator, contact: Contact, session: str) -> None:
        self._agent, self._coordinator, self._contact, self._session = agent, coordinator, contact, session
        self.interval = 10.0
        self.lease = 60.0
        self._refused = 0
        #: Whether the coordinator knows that this worker is open: it gives nothing to one that it believes paused.
        self.told_open = True
        #: How the machine is doing, told with each heartbeat that is not about single attempts.
        self.measure: Callable[[], Metrics | None] = lambda: None
        #: Called with the orders that came: whether an admin wants this worker paused or drained.
        self.on_orders: Callable[[bool, bool], None] = lambda _pause, _drain: None

    def step(self) -> float:
        """Send one for everything that is held; the seconds until the next."""
        with self._agent.lock:
            attempts = [each for each in self._agent.attempts.values() if self._held(each)]
        message = Heartbeat(
            session=self._session,
            holding=[self._describe(each) for each in attempts][:4096],
            state=self._agent.gate.state,  # type: ignore[arg-type]
            reason=self._agent.gate.reason[:2000],
            until=self._agent.gate.until,
            free=self._free().message(),
            metrics=self.measure(),
        )
        self._unfit = False
        if not self._send(message) and self._unfit:
            self._send(_plainest(message))
        return self._wait

    def ask_about(self, name: str) -> bool:
        """Name one attempt now: one whose lease is over is taken up again if its job is nobody else's, or it stops.
        Whether there was an answer."""
        message = Heartbeat(
            session=self._session,
            holding=[Held(attempt=name)],
            state=self._agent.gate.state,  # type: ignore[arg-type]
            reason=self._agent.gate.reason[:2000],
            until=self._agent.gate.until,
        )
        with contextlib.suppress(Superseded):  # the next heartbeat will say so
            return self._send(message)
        return False

    def _held(self, attempt: Attempt) -> bool:
        # A result that is just being sent would be answered as stale: it is named again only if it is stuck.
        if attempt.stage is Stage.ENDED:
            return self._agent.clock() - attempt.ended > self.interval
        return attempt.ending is not Ending.STALE

    def _free(self) -> Amount:
        """What another job could have: nothing while every slot is taken, however little the others use."""
        ledger = self._agent.ledger
        return Amount() if ledger.full else ledger.free()

    def _describe(self, attempt: Attempt) -> Held:
        if attempt.stage is not Stage.RUNNING:
            return Held(attempt=attempt.id)
        progress, message = workspace.progress_of(attempt.launch.workspace)
        ago = max(0.0, self._agent.lease_clock() - attempt.began) if attempt.began else None
        return Held(attempt=attempt.id, progress=progress, message=message, began_seconds_ago=ago)

    def _send(self, message: Heartbeat) -> bool:
        """Whether it was answered. If so, the answer is acted on. `_wait` says when the next one is due."""
        sent = self._agent.lease_clock()
        try:
            answer = self._coordinator.heartbeat(message)
        except Unreachable as error:
            self._wait = self._contact.failed("heartbeat", error, self.lease / 3 if message.holding else None)
            return False
        except Refused as refused:
            self._wait = self.when_refused(refused)
            return False
        self._contact.ok("heartbeat")
        self._wait = self.interval
        was_open, self.told_open = self.told_open, message.state in WORKING
        if self._refused:
            self._refused = 0
            if self._agent.gate.open("token"):
                self._agent.say("the coordinator accepts the token again")
                self._agent.on_room()
        self.on_orders(answer.orders.pause, answer.orders.drain)
        if self.told_open and not was_open:
            self._agent.on_room()
        self._agent.told(dict(answer.attempts), sent)
        return True

    def when_refused(self, refused: Refused) -> float:
        """What a refusal means; the seconds until the next try."""
        if refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        if refused.status in {401, 403}:
            self._count_refusal()
            if self._agent.gate.close("token", "the coordinator does not accept the token of this worker"):
                self._agent.say(f"the coordinator does not accept the token: {refused.message}; no new work is taken")
            return self.interval if self._refused < REFUSALS_BEFORE_STOP else min(60.0, self.interval * self._refused)
        self._unfit = refused.status in UNFIT
        self._agent.say(f"the coordinator refused a heartbeat: {refused.message}")
        return self.interval

    def _count_refusal(self) -> None:
        """One each heartbeat, however many threads are refused at the same moment."""
        with self._agent.lock:
            now = self._agent.clock()
            if now - self._refused_at < self.interval / 2:
                return
            self._refused, self._refused_at = self._refused + 1, now
        if self._refused == REFUSALS_BEFORE_STOP:
            self._agent.say("the token is still not accepted: what runs is stopped")
            for name in list(self._agent.attempts):
                self._agent.end(name, Ending.STALE, "")

    _wait: float = 1.0
    _refused_at = float("-inf")
    _unfit = False


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
