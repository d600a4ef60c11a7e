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
from deborgen_worker.contact import Line
from deborgen_worker.coordinator import NoWork
from deborgen_worker.crash import point
from deborgen_worker.heartbeat import Heart, Superseded
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.spool import Spool

#: How long a claim waits on the server with all the room there is, and with a part of it: then what is free may change.
IDLE_WAIT_SECONDS = 20.0
PART_WAIT_SECONDS = 5.0
#: While jobs end here, a claim for a part of the room waits about as long as they run, but at least this long: then
#: more of it is free, and a job that needs more may fit.
LEAST_WAIT_SECONDS = 0.2
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

    def __init__(self, agent: Agent, spool: Spool, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._agent, self._spool, self._new_id = agent, spool, new_id

    def ask(self) -> NextClaim | None:
        """A claim for the room there is, not yet on disk: `Spool.commit` must come before it is sent. None if nothing
        may be asked for."""
        if len(self._spool.unsent()) >= UNSENT_MOST:
            return None
        request = self._new_id()
        asked = self._agent.ask(request)
        if asked is None:
            return None
        try:
            self._spool.claim_asked(request)
        except SpoolFullError as error:
            self._agent.answered(request)
            self._spool_full(error)
            return None
        return NextClaim(request_id=request, free=asked.amount.message(), max=asked.most, ahead=asked.ahead)

    def answered(self, claim: NextClaim, given: list[Assignment], sent: float, waited_seconds: float) -> bool:
        """Write down what came, and start it. False if it could not be written down: then nothing of it is started.

        `sent` is when the request that was answered was sent.
        """
        try:
            self._spool.claim_answered(claim.request_id, given)
        except SpoolFullError as error:  # the coordinator gives it to somebody else when its lease ends
            self.drop(claim)
            self._spool_full(error)
            return False
        ahead_after = None
        if len(given) >= claim.max:
            ahead_after = 0.0  # there is more where this came from
        elif claim.ahead and not given:
            ahead_after = self._agent.clock() + NOT_AHEAD_SECONDS
        try:
            self._agent.accept(given, sent, waited_seconds, ahead=claim.ahead)
        finally:  # not before: until it is taken, what came must not be asked for again
            self._agent.answered(claim.request_id, ahead_after)
        if given:  # after the start, which need not wait for the disk
            self._spool.commit()
        return True

    def drop(self, claim: NextClaim) -> None:
        """Forget a claim. What it may have brought is never named, so it is released when its lease ends."""
        self._agent.answered(claim.request_id)
        with contextlib.suppress(SpoolFullError):  # it is forgotten with the next start
            self._spool.claim_answered(claim.request_id, [])

    def _spool_full(self, error: Exception) -> None:
        self._agent.keep("disk", f"the spool's disk is full ({error})")


class Claimer:
    """One `step` asks once, starts what came, and says how many seconds to wait before the next."""

    def __init__(
        self, name: str, agent: Agent, spool: Spool, line: Line, heart: Heart, claims: Claims,
        *, idle_wait: float = IDLE_WAIT_SECONDS,
    ) -> None:  # fmt: skip
        self._name, self._agent, self._spool, self._line = name, agent, spool, line
        self._heart, self._claims, self._idle_wait = heart, claims, idle_wait
        #: A claim that was sent and not answered: it is sent again as it was, so it brings the same attempts.
        self._pending: Claim | None = None
        self._found_nothing = False

    def step(self) -> float:
        agent = self._agent
        if agent.is_closed or not self._heart.told_open:
            self._drop()
            return LOOK_AGAIN_SECONDS
        if self._pending is None:
            if len(self._spool.unsent()) >= UNSENT_MOST:
                return UNSENT_SECONDS
            soon = agent.look(lambda machine, _: machine.ledger.ended) + FINISH_SECONDS - agent.clock()
            if soon > 0 and agent.busy_with_short_jobs():
                return soon
            self._pending = self._ask()
            if self._pending is None:
                return LOOK_AGAIN_SECONDS
        pending = self._pending
        sent = agent.lease_clock()
        try:
            answer = self._line.coordinator.claim(pending)
        except Unreachable as error:
            return self._line.contact.failed(self._name, error)
        except Refused as refused:
            self._drop()
            return self._when_refused(refused)
        self._line.contact.ok(self._name)
        self._pending = None
        if isinstance(answer, NoWork):
            self._claims.answered(pending, [], sent, 0.0)
            self._found_nothing = not pending.ahead
            return 0.0 if pending.ahead else answer.retry_after
        self._found_nothing = False
        written = self._claims.answered(pending, answer.assignments, sent, answer.waited_seconds)
        return 0.0 if written else LOOK_AGAIN_SECONDS

    def _ask(self) -> Claim | None:
        now = self._agent.clock()
        wanting, others, part, soon = self._agent.look(
            lambda machine, _: (
                machine.ledger.wanting(now),
                any(each.usable for each in machine.ledger.asked.values()),
                bool(machine.ledger.running or machine.ledger.waiting or machine.ledger.asked),
                machine.ledger.average if now - machine.ledger.ended < PART_WAIT_SECONDS else PART_WAIT_SECONDS,
            )
        )
        if not wanting or (self._found_nothing and others):
            # The other claimer waits with a part of the room. Two that part it for ever would starve a large job: this
            # one stands back, and the other asks for all of it next.
            return None
        asked = self._claims.ask()
        if asked is None:
            return None
        self._spool.commit()
        point("after-claim-written")
        # While the other claimer waits with a part of the room, this is not all of it: soon one asks for the whole.
        wait = self._idle_wait
        if part:
            wait = min(wait, PART_WAIT_SECONDS, max(LEAST_WAIT_SECONDS, soon))
        return Claim(
            session=self._line.session, request_id=asked.request_id, free=asked.free, max=asked.max, ahead=asked.ahead,
            wait_seconds=0.0 if asked.ahead else wait,
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
        self._line.say(f"the coordinator refused a claim: {refused.message}")
        return 10.0
