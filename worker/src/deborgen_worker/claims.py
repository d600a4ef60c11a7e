"""Asks for work: one question at a time, for all the room there is.

The question keeps its request id until it has brought something. The claimer sends it in a claim that waits at the
coordinator. When more room is free meanwhile, a finish carries the same request id with all of the room. One request id
brings the same attempts however often it is sent, so nothing is given twice, whichever of the two brings it.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.errors import Code
from deborgen_shared.messages import Assignment, Claim, NextClaim
from deborgen_worker.agent import Agent
from deborgen_worker.capacity import Amount
from deborgen_worker.contact import Line
from deborgen_worker.coordinator import NoWork
from deborgen_worker.crash import point
from deborgen_worker.heartbeat import Heart, Superseded
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.spool import Spool

#: How long a claim waits on the server when nothing runs here, and when something does: then what is free may change.
IDLE_WAIT_SECONDS = 20.0
PART_WAIT_SECONDS = 5.0
#: Nothing to ask for: wait to be woken, and look again at the latest after this.
LOOK_AGAIN_SECONDS = 30.0
#: A question ahead of need found nothing: only for what there is room for during this time.
NOT_AHEAD_SECONDS = 0.2
#: So many results may wait to be delivered. A worker that runs faster than it delivers asks for nothing more meanwhile.
UNSENT_MOST = 1024
#: The finish of a job brings the next one. A claim of its own is made when no job has ended for this many seconds.
FINISH_SECONDS = 0.02


class Claims:
    """The one question of this worker, and what becomes of its answer."""

    def __init__(self, agent: Agent, spool: Spool, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._agent, self._spool, self._new_id = agent, spool, new_id
        self._lock = threading.Lock()
        #: The request id of the question; empty if the last one has brought something.
        self._request = ""
        #: What the claim that waits at the coordinator asks for; None while none does.
        self.waits_for: Amount | None = None

    def ask(self, *, waits: bool = False) -> NextClaim | None:
        """The question, for the room there is, not yet on disk: `Spool.commit` must come before it is sent. None if
        nothing may be asked for. One that `waits` is over with `stop_waiting`."""
        with self._lock:
            asked = self._agent.question() if len(self._spool.unsent()) < UNSENT_MOST else None
            if asked is None:
                return None
            if not self._request:
                request = self._new_id()
                try:
                    self._spool.claim_asked(request)
                except SpoolFullError as error:
                    self._spool_full(error)
                    return None
                self._request = request
            if waits or (self.waits_for is not None and not asked.ahead):
                self.waits_for = asked.amount
            free = asked.amount.message()
            return NextClaim(request_id=self._request, free=free, max=asked.most, ahead=asked.ahead)

    def stop_waiting(self) -> None:
        with self._lock:
            self.waits_for = None

    def has_outgrown(self) -> bool:
        """Whether there is more room than the claim that waits at the coordinator asks for."""
        with self._lock:
            if self.waits_for is None:
                return False
            asked = self._agent.question()
            return asked is not None and not asked.ahead and not self.waits_for.holds(asked.amount)

    def answered(self, claim: NextClaim, given: list[Assignment] | None, sent: float, waited_seconds: float) -> bool:
        """Write down what came, and start it. False if it could not be written down: then nothing of it is started.

        `given` is None if nothing came, and the same request may still bring something. `sent` is when the request that
        was answered was sent.
        """
        with self._lock:  # until it is taken, what came must not be asked for again
            if claim.request_id != self._request:
                return True  # the other one has brought it already
            if claim.ahead and not given:
                self._agent.ask_ahead_after(self._agent.clock() + NOT_AHEAD_SECONDS)
            if given is None:
                return True
            try:
                self._spool.claim_answered(claim.request_id, given)
            except SpoolFullError as error:  # the coordinator gives it to somebody else when its lease ends
                self._drop()
                self._spool_full(error)
                return False
            self._request = ""
            if len(given) >= claim.max:
                self._agent.ask_ahead_after(0.0)  # there is more where this came from
            self._agent.accept(given, sent, waited_seconds)
        if given:  # after the start, which need not wait for the disk
            self._spool.commit()
        return True

    def drop(self, claim: NextClaim) -> None:
        """Forget a question. What it may have brought is never named, so it is released when its lease ends."""
        with self._lock:
            if claim.request_id == self._request:
                self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(SpoolFullError):  # it is forgotten with the next start
            self._spool.claim_answered(self._request, [])
        self._request = ""

    def _spool_full(self, error: Exception) -> None:
        self._agent.keep("disk", f"the spool's disk is full ({error})")


class Claimer:
    """One `step` asks once, starts what came, and says how many seconds to wait before the next."""

    def __init__(
        self, agent: Agent, spool: Spool, line: Line, heart: Heart, claims: Claims,
        *, idle_wait: float = IDLE_WAIT_SECONDS,
    ) -> None:  # fmt: skip
        self._agent, self._spool, self._line = agent, spool, line
        self._heart, self._claims, self._idle_wait = heart, claims, idle_wait

    def step(self) -> float:
        agent = self._agent
        if agent.is_closed or not self._heart.told_open:
            return LOOK_AGAIN_SECONDS
        ended, part = agent.look(
            lambda machine, _: (machine.ledger.ended, bool(machine.ledger.running or machine.ledger.waiting))
        )
        soon = ended + FINISH_SECONDS - agent.clock()
        if soon > 0:
            return soon
        asked = self._claims.ask(waits=True)
        if asked is None:
            return LOOK_AGAIN_SECONDS
        try:
            return self._send(asked, min(self._idle_wait, PART_WAIT_SECONDS) if part else self._idle_wait)
        finally:
            self._claims.stop_waiting()

    def _send(self, asked: NextClaim, wait: float) -> float:
        self._spool.commit()
        point("after-claim-written")
        claim = Claim(
            session=self._line.session, request_id=asked.request_id, free=asked.free, max=asked.max, ahead=asked.ahead,
            wait_seconds=0.0 if asked.ahead else wait,
        )  # fmt: skip
        sent = self._agent.lease_clock()
        try:
            answer = self._line.coordinator.claim(claim)
        except Unreachable as error:  # what it may have brought comes with the next try
            return self._line.contact.failed("claim", error)
        except Refused as refused:
            self._claims.drop(asked)
            return self._when_refused(refused)
        self._line.contact.ok("claim")
        if isinstance(answer, NoWork):
            self._claims.answered(asked, None, sent, 0.0)
            return 0.0 if asked.ahead else answer.retry_after
        written = self._claims.answered(asked, answer.assignments, sent, answer.waited_seconds)
        return 0.0 if written else LOOK_AGAIN_SECONDS

    def _when_refused(self, refused: Refused) -> float:
        if refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        if refused.status in {401, 403}:
            return self._heart.interval
        self._line.say(f"the coordinator refused a claim: {refused.message}")
        return 10.0
