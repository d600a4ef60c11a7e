"""Asks for work: with a claim that may wait at the coordinator, or with one that rides on a finish and never waits.

One claimer has one claim on its way at most; two of them keep the slots of short jobs full.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.errors import Code
from deborgen_shared.messages import Assignment, Claim, NextClaim
from deborgen_worker.agent import Agent
from deborgen_worker.contact import Contact
from deborgen_worker.coordinator import Coordinator, NoWork
from deborgen_worker.crash import point
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
#: While short jobs follow each other, their finishes bring the next ones. A claim of its own is made when none has come
#: for this many seconds.
FINISH_SECONDS = 0.02


class Claims:
    """The claims of this worker: what each may ask for, and what becomes of its answer."""

    def __init__(self, agent: Agent, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._agent, self._new_id = agent, new_id

    def ask(self) -> NextClaim | None:
        """A claim for the room there is, not yet on disk: `Spool.commit` must come before it is sent. None if nothing
        may be asked for."""
        agent = self._agent
        if agent.gate.closed or len(agent.spool.unsent()) >= UNSENT_MOST:
            return None
        with agent.lock:
            request = self._new_id()
            asked = agent.ledger.ask(request, agent.clock())
        if asked is None:
            return None
        try:
            agent.spool.claim_asked(request)
        except SpoolFullError as error:
            self._forget(request)
            self._spool_full(error)
            return None
        return NextClaim(request_id=request, free=asked.amount.message(), max=asked.most, ahead=asked.ahead)

    def answered(self, claim: NextClaim, given: list[Assignment], sent: float, waited_seconds: float) -> bool:
        """Write down what came, and start it. False if it could not be written down: then nothing of it is started.

        `sent` is when the request that was answered was sent.
        """
        agent = self._agent
        try:
            agent.spool.claim_answered(claim.request_id, given)
        except SpoolFullError as error:  # the coordinator gives it to somebody else when its lease ends
            self.drop(claim)
            self._spool_full(error)
            return False
        try:
            agent.accept(given, sent, waited_seconds, ahead=claim.ahead)
        finally:  # not before: until it is taken, what came must not be asked for again
            self._forget(claim.request_id)
        if given:  # after the start, which need not wait for the disk
            agent.spool.commit()
        with agent.lock:
            if len(given) >= claim.max:
                agent.ledger.ahead_after = 0.0  # there is more where this came from
            elif claim.ahead and not given:
                agent.ledger.ahead_after = agent.clock() + NOT_AHEAD_SECONDS
        return True

    def drop(self, claim: NextClaim) -> None:
        """Forget a claim. What it may have brought is never named, so it is released when its lease ends."""
        self._forget(claim.request_id)
        with contextlib.suppress(SpoolFullError):  # it is forgotten with the next start
            self._agent.spool.claim_answered(claim.request_id, [])

    def _forget(self, request: str) -> None:
        with self._agent.lock:
            self._agent.ledger.answered(request)

    def _spool_full(self, error: Exception) -> None:
        if self._agent.gate.close("disk", f"the spool's disk is full ({error})"):
            self._agent.say(f"the spool's disk is full ({error}): no new work is taken")


class Claimer:
    """One `step` asks once, starts what came, and says how many seconds to wait before the next."""

    def __init__(
        self, name: str, agent: Agent, coordinator: Coordinator, contact: Contact, heart: Heart, session: str,
        claims: Claims, *, idle_wait: float = IDLE_WAIT_SECONDS,
    ) -> None:  # fmt: skip
        self._name, self._agent, self._coordinator, self._contact = name, agent, coordinator, contact
        self._heart, self._session, self._claims, self._idle_wait = heart, session, claims, idle_wait
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
            soon = agent.ledger.ended + FINISH_SECONDS - agent.clock()
            if soon > 0 and agent.busy_with_short_jobs():
                return soon
            self._pending = self._ask()
            if self._pending is None:
                return LOOK_AGAIN_SECONDS
        pending = self._pending
        sent = agent.lease_clock()
        try:
            answer = self._coordinator.claim(pending)
        except Unreachable as error:
            return self._contact.failed(self._name, error)
        except Refused as refused:
            self._drop()
            return self._when_refused(refused)
        self._contact.ok(self._name)
        self._pending = None
        if isinstance(answer, NoWork):
            self._claims.answered(pending, [], sent, 0.0)
            self._found_nothing = not pending.ahead
            return 0.0 if pending.ahead else answer.retry_after
        self._found_nothing = False
        written = self._claims.answered(pending, answer.assignments, sent, answer.waited_seconds)
        return 0.0 if written else LOOK_AGAIN_SECONDS

    def _ask(self) -> Claim | None:
        agent = self._agent
        with agent.lock:
            if not agent.ledger.wanting(agent.clock()):
                return None
            others = [each for each in agent.ledger.asked.values() if each.usable]
            if self._found_nothing and others:
                # The other claimer waits with a part of the room. Two that part it for ever would starve a large job:
                # this one stands back, and the other asks for all of it next.
                return None
            # While the other claimer waits with a part of the room, this is not all of it: soon one asks for the whole.
            part = bool(agent.ledger.running or agent.ledger.waiting or agent.ledger.asked)
        asked = self._claims.ask()
        if asked is None:
            return None
        agent.spool.commit()
        point("after-claim-written")
        wait = 0.0 if asked.ahead else min(PART_WAIT_SECONDS, self._idle_wait) if part else self._idle_wait
        return Claim(
            session=self._session, request_id=asked.request_id, free=asked.free, max=asked.max, ahead=asked.ahead,
            wait_seconds=wait,
        )  # fmt: skip

    def _drop(self) -> None:
        if self._pending is not None:
            self._claims.drop(self._pending)
            self._pending = None

    def _when_refused(self, refused: Refused) -> float:
        if refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        if refused.status in {401, 403}:
            return self._heart.interval
        self._agent.say(f"the coordinator refused a claim: {refused.message}")
        return 10.0
