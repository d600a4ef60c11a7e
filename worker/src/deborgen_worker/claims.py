"""Asks for work. One claimer has one claim on its way at most; two of them keep the slots of short jobs full."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.errors import Code
from deborgen_shared.messages import Claim
from deborgen_worker.agent import Agent
from deborgen_worker.contact import Contact
from deborgen_worker.coordinator import Coordinator, NoWork
from deborgen_worker.heartbeat import Heart, Superseded
from deborgen_worker.journal import SpoolFullError

#: How long a claim waits on the server with all the room there is, and with a part of it: then what is free may change.
IDLE_WAIT_SECONDS = 20.0
PART_WAIT_SECONDS = 5.0
#: Nothing to ask for: wait to be woken, and look again at the latest after this.
LOOK_AGAIN_SECONDS = 30.0
#: A question ahead of need found nothing: only for what there is room for during this time.
NOT_AHEAD_SECONDS = 0.2
#: So many results may wait to be delivered. A worker that runs faster than it delivers asks for nothing more meanwhile.
UNSENT_MOST = 1024
UNSENT_SECONDS = 0.2


class Claimer:
    """One `step` asks once, takes and confirms what came, and says how many seconds to wait before the next."""

    def __init__(
        self, name: str, agent: Agent, coordinator: Coordinator, contact: Contact, heart: Heart, session: str,
        *, new_id: Callable[[], str] = lambda: uuid.uuid4().hex, idle_wait: float = IDLE_WAIT_SECONDS,
        confirm: Callable[[list[str]], object] | None = None,
    ) -> None:  # fmt: skip
        self._name, self._agent, self._coordinator, self._contact = name, agent, coordinator, contact
        self._heart, self._session, self._new_id, self._idle_wait = heart, session, new_id, idle_wait
        #: How what can start at once is confirmed; what came ahead waits to be confirmed together with others.
        self._confirm = confirm or heart.ask_confirm
        #: A claim that was sent and not answered: it is sent again as it was, so it brings the same attempts.
        self._pending: Claim | None = None
        self._found_nothing = False

    def step(self) -> float:
        agent = self._agent
        if agent.gate.closed or not self._heart.told_open:
            self._drop()
            return LOOK_AGAIN_SECONDS
        if self._pending is None:
            if len(agent.spool.unsent()) >= UNSENT_MOST:
                return UNSENT_SECONDS
            self._pending = self._ask()
            if self._pending is None:
                return LOOK_AGAIN_SECONDS
        pending = self._pending
        try:
            answer = self._coordinator.claim(pending)
        except Unreachable as error:
            return self._contact.failed(self._name, error)
        except Refused as refused:
            self._drop()
            return self._when_refused(refused)
        self._contact.ok(self._name)
        assignments = [] if isinstance(answer, NoWork) else answer.assignments
        try:
            agent.spool.claim_answered(pending.request_id, assignments)
        except SpoolFullError as error:
            # Not written down, so not started: it was never confirmed, and the coordinator gives it to somebody else.
            self._drop()
            return self._spool_full(error)
        names = agent.accept(assignments, ahead=pending.ahead)
        self._pending = None
        self._found_nothing = not assignments and not pending.ahead
        with agent.lock:
            agent.ledger.answered(pending.request_id)
            if len(assignments) >= pending.max:
                agent.ledger.ahead_after = 0.0  # there is more where this came from
            elif pending.ahead and not assignments:
                agent.ledger.ahead_after = agent.clock() + NOT_AHEAD_SECONDS
        if agent.gate.closed:
            return 0.0  # drained meanwhile: whoever closed the gate gives them back
        if names:
            (self._heart.ask_confirm if pending.ahead else self._confirm)(names)
        if isinstance(answer, NoWork):
            return 0.0 if pending.ahead else answer.retry_after
        return 0.0

    def _ask(self) -> Claim | None:
        agent = self._agent
        with agent.lock:
            if not agent.ledger.wanting(agent.clock()):
                return None
            if self._found_nothing and any(each.usable for each in agent.ledger.asked.values()):
                # The other claimer waits with a part of the room. Two that part it for ever would starve a large job:
                # this one stands back, and the other asks for all of it next.
                return None
            request = self._new_id()
            asked = agent.ledger.ask(request, agent.clock())
            # While the other claimer waits with a part of the room, this is not all of it: soon one asks for the whole.
            part = bool(agent.ledger.running or agent.ledger.waiting or len(agent.ledger.asked) > 1)
        if asked is None:
            return None
        try:
            agent.spool.claim_asked(request)
        except SpoolFullError as error:
            agent.ledger.answered(request)
            self._spool_full(error)
            return None
        wait = 0.0 if asked.ahead else min(PART_WAIT_SECONDS, self._idle_wait) if part else self._idle_wait
        return Claim(
            session=self._session, request_id=request, free=asked.amount.message(), max=asked.most, wait_seconds=wait,
            ahead=asked.ahead,
        )  # fmt: skip

    def _drop(self) -> None:
        """Forget a claim. What it may have brought was never confirmed, so it is released when its lease ends."""
        if self._pending is not None:
            request = self._pending.request_id
            self._pending = None
            with self._agent.lock:
                self._agent.ledger.answered(request)
            self._agent.spool.claim_answered(request, [])

    def _when_refused(self, refused: Refused) -> float:
        if refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        if refused.status in {401, 403}:
            return self._heart.interval
        self._agent.say(f"the coordinator refused a claim: {refused.message}")
        return 10.0

    def _spool_full(self, error: Exception) -> float:
        if self._agent.gate.close("disk", f"the spool's disk is full ({error})"):
            self._agent.say(f"the spool's disk is full ({error}): no new work is taken")
        return LOOK_AGAIN_SECONDS
