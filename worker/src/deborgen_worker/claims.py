"""Claim work: one request at a time, for all the free room.

A request keeps its id until it has brought work. The claimer sends it as a claim that waits at the coordinator. If more
room becomes free meanwhile, a finish (the call that delivers results) carries the same request id with the larger room.
However often a request id is sent, it brings the same attempts. So no job is taken twice, whether the claim or the
finish is answered first.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.errors import Code
from deborgen_shared.messages import Assignment, Claim, NextClaim
from deborgen_worker.agent import Agent
from deborgen_worker.capacity import Amount
from deborgen_worker.contact import Link
from deborgen_worker.coordinator import NothingClaimed
from deborgen_worker.crash import crash_point
from deborgen_worker.heartbeat import HeartbeatLoop, Superseded
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.spool import Spool

#: A claim of an idle worker waits at the coordinator for this many seconds.
IDLE_WAIT_SECONDS = 20.0
#: A claim waits for only this many seconds while jobs run, because the free room may change.
PART_WAIT_SECONDS = 5.0
#: If no work may be claimed, check again after this many seconds, unless woken earlier.
LOOK_AGAIN_SECONDS = 30.0
#: After a prefetch that found nothing, do not prefetch for this many seconds.
NO_PREFETCH_SECONDS = 0.2
#: While a finish is coming, which carries the request, do not claim. Its answer wakes the claimer, at the latest after:
FINISH_SECONDS = 1.0
#: Claim nothing while this many results are not delivered, because jobs run faster than their results are delivered.
MAX_UNSENT_RESULTS = 1024


class Claims:
    """The open request of this worker for work. Both the claimer and the finish send it and take its answer."""

    def __init__(self, agent: Agent, spool: Spool, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._agent, self._spool, self._new_id = agent, spool, new_id
        self._lock = threading.Lock()
        #: The id of the open request; empty if the last one has brought work.
        self._request = ""
        #: What the claim that waits at the coordinator asks for; None while no claim waits there.
        self.waiting_amount: Amount | None = None
        #: Whether a finish is about to be sent or is on its way. It carries the request, so the claimer waits for it.
        self.finish_coming = False

    def ask(self, *, waits: bool = False) -> NextClaim | None:
        """The request for all the free room; None if no work may be claimed. Call `Spool.commit` before sending it.

        After a claim that `waits`, call `stop_waiting`.
        """
        with self._lock:
            asked = self._agent.would_claim() if len(self._spool.unsent()) < MAX_UNSENT_RESULTS else None
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
            if waits or (self.waiting_amount is not None and not asked.ahead):
                self.waiting_amount = asked.amount
            free = asked.amount.message()
            return NextClaim(request_id=self._request, free=free, max=asked.max_jobs, ahead=asked.ahead)

    def stop_waiting(self) -> None:
        with self._lock:
            self.waiting_amount = None

    def has_outgrown(self) -> bool:
        """Whether there is more room now than the claim that waits at the coordinator asks for."""
        with self._lock:
            if self.waiting_amount is None:
                return False
            asked = self._agent.would_claim()
            return asked is not None and not asked.ahead and not self.waiting_amount.covers(asked.amount)

    def take_answer(self, claim: NextClaim, given: list[Assignment] | None, sent: float, waited_seconds: float) -> bool:
        """Write the attempts to the spool and start them. If the spool is full, return False and start none of them.

        `given` is None if there was no work; the same request may still bring some. `sent` is when the request was
        sent, and `waited_seconds` how long it waited at the coordinator.
        """
        with self._lock:  # until the attempts are taken, no other claim may ask for their room
            if claim.request_id != self._request:
                return True  # the same request, sent by the other call, was answered first
            if claim.ahead and not given:
                self._agent.no_prefetch_before(self._agent.clock() + NO_PREFETCH_SECONDS)
            if given is None:
                return True
            try:
                self._spool.claim_answered(claim.request_id, given)
            except SpoolFullError as error:  # when their leases end, the coordinator gives the jobs to other workers
                self._drop()
                self._spool_full(error)
                return False
            self._request = ""
            if len(given) >= claim.max:
                self._agent.no_prefetch_before(0.0)  # the coordinator has more jobs
            self._agent.accept(given, sent, waited_seconds)
        return True

    def drop(self, claim: NextClaim) -> None:
        """Forget a request. If it brought attempts, no heartbeat names them, and they are released when their leases
        end."""
        with self._lock:
            if claim.request_id == self._request:
                self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(SpoolFullError):  # if the disk is full, the next start of the worker forgets it
            self._spool.claim_answered(self._request, [])
        self._request = ""

    def _spool_full(self, error: Exception) -> None:
        self._agent.set_gate("disk", f"the spool's disk is full ({error})")


class Claimer:
    """One `step` sends one claim, starts the attempts that came, and returns the seconds until the next step."""

    def __init__(
        self, agent: Agent, spool: Spool, link: Link, heartbeats: HeartbeatLoop, claims: Claims,
        *, idle_wait: float = IDLE_WAIT_SECONDS,
    ) -> None:  # fmt: skip
        self._agent, self._spool, self._link = agent, spool, link
        self._heartbeats, self._claims, self._idle_wait = heartbeats, claims, idle_wait

    def step(self) -> float:
        agent = self._agent
        if agent.is_closed or not self._heartbeats.reported_open:
            return LOOK_AGAIN_SECONDS
        if self._claims.finish_coming:
            return FINISH_SECONDS
        part = agent.read_state(lambda machine, _: bool(machine.ledger.running or machine.ledger.waiting))
        asked = self._claims.ask(waits=True)
        if asked is None:
            return LOOK_AGAIN_SECONDS
        try:
            return self._send(asked, min(self._idle_wait, PART_WAIT_SECONDS) if part else self._idle_wait)
        finally:
            self._claims.stop_waiting()

    def _send(self, asked: NextClaim, wait: float) -> float:
        self._spool.commit()
        crash_point("after-claim-written")
        claim = Claim(
            session=self._link.session, request_id=asked.request_id, free=asked.free, max=asked.max, ahead=asked.ahead,
            wait_seconds=0.0 if asked.ahead else wait,
        )  # fmt: skip
        sent = self._agent.lease_clock()
        try:
            answer = self._link.coordinator.claim(claim)
        except NoAnswer as error:  # the next claim has the same request id, and brings the same attempts
            return self._link.contact.failed("claim", error)
        except Refused as refused:
            self._claims.drop(asked)
            return self._when_refused(refused)
        self._link.contact.ok("claim")
        if isinstance(answer, NothingClaimed):
            self._claims.take_answer(asked, None, sent, 0.0)
            return 0.0 if asked.ahead else answer.retry_after
        written = self._claims.take_answer(asked, answer.assignments, sent, answer.waited_seconds)
        return 0.0 if written else LOOK_AGAIN_SECONDS

    def _when_refused(self, refused: Refused) -> float:
        if refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        if refused.status in {401, 403}:
            return self._heartbeats.interval
        self._link.say(f"the coordinator refused a claim: {refused.message}")
        return 10.0
