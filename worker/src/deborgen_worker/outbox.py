"""Sends what the spool holds until it is acknowledged: results in batches, before them what belongs to them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from itertools import islice

from msgspec.structs import replace

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.errors import Code
from deborgen_shared.messages import Finish, Finished, NextClaim, Result
from deborgen_shared.states import Outcome
from deborgen_worker import artifacts
from deborgen_worker.agent import Agent
from deborgen_worker.claims import Claims
from deborgen_worker.contact import Line
from deborgen_worker.crash import point
from deborgen_worker.heartbeat import Heart, Superseded
from deborgen_worker.log_pump import LOG_PART, send_events
from deborgen_worker.spool import Ended, Spool

BATCH = 256
BATCH_BYTES = 512 * 1024
UPLOAD_TRIES = 5
#: The store is asked about the artifacts of so many results at once, as long as they have no more digests than this.
ASK_RESULTS = 32
ASK_DIGESTS = 1000
NOTHING = 3600.0
#: When nobody answers whether a stale attempt may go on, that is asked again after this many seconds.
ASK_AGAIN_SECONDS = 1.0
#: While jobs end in quick succession, their results go out together, at most this often; more often with free slots.
GROUP_SECONDS = 0.04
SHORT_SECONDS = 0.01


class Results:
    """The names of attempts whose results are in the spool, on their way to the outbox."""

    def __init__(self) -> None:
        self.woken, self.uploads = threading.Event(), threading.Event()
        self._names: deque[str] = deque()

    def put(self, attempts: list[str]) -> None:
        self._names.extend(attempts)
        self.woken.set()

    def take(self) -> list[str]:
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._names.popleft())
        return found

    def wake(self) -> None:
        self.woken.set()
        self.uploads.set()


class Outbox:
    """Two lanes: `step` sends results that are complete, `step_uploads` completes those that have more to send."""

    def __init__(
        self, agent: Agent, spool: Spool, line: Line, heart: Heart, claims: Claims, results: Results
    ) -> None:  # fmt: skip
        self._agent, self._spool, self._line, self._heart, self._claims = agent, spool, line, heart, claims
        self._results = results
        self._ready: deque[str] = deque()
        self._uploads: deque[str] = deque()
        self._lock = threading.Lock()
        self._sent_at = -1.0
        self._tries: dict[str, int] = {}
        self._missing: dict[str, dict[str, str]] = {}
        self._asked_about: set[str] = set()

    def _sort(self) -> None:
        """Take the results that are new: those with more to send come to the uploads first. Where that takes a while,
        the claimers ask for more at once."""
        slow = False
        for attempt in self._results.take():
            result = self._result(attempt)
            if result is None:
                continue
            complete = self._complete(attempt, result)
            with self._lock:
                (self._ready if complete else self._uploads).append(attempt)
            slow |= not complete
        if slow:
            self._results.uploads.set()
            self._agent.refill()

    @property
    def empty(self) -> bool:
        return not self._spool.unsent()

    def step(self) -> float:
        """Send one batch; the seconds until the next try."""
        self._sort()
        early = self._sent_at - self._agent.clock()
        if self._agent.question() is not None:  # it carries the next claim: the slots must not wait long for that
            early += SHORT_SECONDS if self._agent.busy_with_short_jobs() else 0.0
        elif self._agent.look(lambda machine, _: bool(machine.ledger.running)):
            early += GROUP_SECONDS
        if early > 0 and len(self._ready) < BATCH:
            return early  # more results are about to come: they share the request
        batch = self._take()
        if not batch and not self._claims.has_outgrown():
            return NOTHING
        self._sent_at = self._agent.clock()
        try:
            gives_back = any(each.outcome == Outcome.RELEASED.value for each in batch)
            claim = None if gives_back else self._claims.ask()  # it would get the same job again
            self._spool.commit()
            point("after-result-written")
        except BaseException:
            self._back(batch)
            raise
        delay = self._send(batch, claim)
        if self._line.contact.lost_since is None:
            self._agent.refill()
        return delay

    def _take(self) -> list[Result]:
        batch: list[Result] = []
        size = 0
        with self._lock:
            while self._ready and len(batch) < BATCH:
                result = self._result(self._ready[0])
                if result is not None:
                    size += len(result.log.data) if result.log else 0
                    size += 100 * len(result.artifacts)
                    if batch and size > BATCH_BYTES:
                        break
                    batch.append(self._dated(result))
                self._ready.popleft()
        return batch

    def _dated(self, result: Result) -> Result:
        """The result with how long ago its program began, as of now."""
        began = self._spool.began(result.attempt)
        if began is None or result.outcome == Outcome.RELEASED.value:
            return result
        return replace(result, began_seconds_ago=max(0.0, self._agent.lease_clock() - began))

    def _send(self, batch: list[Result], claim: NextClaim | None = None) -> float:
        sent = self._agent.lease_clock()
        try:
            answer = self._line.coordinator.finish(Finish(session=self._line.session, results=batch, claim=claim))
        except Unreachable as error:
            self._back(batch)
            return self._line.contact.failed("finish", error)
        except Refused as refused:
            if claim is not None:
                self._claims.drop(claim)
            if claim is not None and refused.code not in {Code.SUPERSEDED, Code.UNAUTHENTICATED, Code.FORBIDDEN}:
                return self._send(batch)  # the claim may be what it was refused for
            return self._when_refused(batch, refused)
        self._line.contact.ok("finish")
        point("after-result-sent")
        try:
            if claim is not None:
                self._claims.answered(claim, answer.assignments or None, sent, answer.waited_seconds or 0.0)
        finally:
            self._settle(batch, answer)
        return 0.0 if self._ready else NOTHING

    def _settle(self, batch: list[Result], answer: Finished) -> None:
        settled: dict[str, str] = {}
        for result in batch:
            word = answer.results.get(result.attempt)
            if word == "missing_blobs":
                self._upload_again(result.attempt)
            elif word is not None:
                settled[result.attempt] = word
            else:
                self._back([result])
        self._agent.settle(settled)
        point("after-settled")

    def _when_refused(self, batch: list[Result], refused: Refused) -> float:
        if refused.code == Code.SUPERSEDED:
            self._back(batch)
            raise Superseded(refused.message)
        if refused.status == 401:
            self._back(batch)
            return 10.0
        if len(batch) > 1:  # one of them is not acceptable: find out which
            return self._send_each(batch)
        if refused.status == 403:  # not this worker's, or its token is of another role: it comes after the others
            with self._lock:
                self._ready.append(batch[0].attempt)
            return 10.0
        result = batch[0]
        if result.outcome == Outcome.ERROR.value and not result.artifacts and result.log is None:
            self._line.say(f"the coordinator will not take the result of {result.attempt}: {refused.message}")
            self._agent.settle({result.attempt: "refused"})
            return 0.0
        plain = Result(
            attempt=result.attempt, outcome=Outcome.ERROR.value, seconds=result.seconds,
            reason=f"the coordinator refused the result ({result.outcome}): {refused.message}"[:2000],
        )  # fmt: skip
        self._spool.ended(Ended(plain.attempt, plain))
        self._back([plain])
        return 0.0

    def _send_each(self, batch: list[Result]) -> float:
        delays: list[float] = []
        for at, result in enumerate(batch):
            try:
                delays.append(self._send([result]))
            except Superseded:
                self._back(batch[at + 1 :])
                raise
        return min(delays)

    def _upload_again(self, attempt: str) -> None:
        """The coordinator lacks what was uploaded. Once more, but not for ever: then the attempt is an error."""
        tries = self._tries[attempt] = self._tries.get(attempt, 0) + 1
        if tries > UPLOAD_TRIES:
            return self._replace(attempt, f"the coordinator still lacks its artifacts after {tries} uploads")
        with self._lock:
            self._uploads.append(attempt)
        self._results.uploads.set()
        return None

    def _back(self, batch: list[Result]) -> None:
        with self._lock:
            self._ready.extendleft(result.attempt for result in reversed(batch))

    def _to_the_end(self) -> None:
        """Let the others go first."""
        with self._lock:
            self._uploads.rotate(-1)

    # What must be there before the result

    def step_uploads(self) -> float:
        """Complete one result: the rest of its program's events, its artifacts, then the rest of its log."""
        self._sort()
        with self._lock:
            if not self._uploads:
                return NOTHING
            attempt = self._uploads[0]
        self._spool.commit()
        result = self._result(attempt)
        try:
            if result is not None:
                self._upload_events(attempt)
                self._upload_artifacts(attempt, result)
                self._upload_log(attempt, result)
        except Unreachable as error:
            self._to_the_end()
            return self._line.contact.failed("upload", error)
        except Refused as refused:
            if refused.status in {401, 403}:  # a new token may come; what is here is kept for it
                self._to_the_end()
                return 10.0
            if refused.code == Code.STALE_ATTEMPT and attempt not in self._asked_about:
                return self._ask_about(attempt)
            self._upload_refused(attempt, refused)
            result = None
        except OSError as error:
            self._line.say(f"what {attempt} left cannot be read: {error}")
            self._replace(attempt, f"what the job left cannot be read: {error}")
            result = None
        else:
            self._line.contact.ok("upload")
            self._asked_about.discard(attempt)
        with self._lock:
            self._uploads.popleft()
            self._missing.pop(attempt, None)
            if result is not None:
                self._ready.append(attempt)
                self._results.woken.set()
        return 0.0

    def _upload_events(self, attempt: str) -> None:
        """Send the events that are left. A stale attempt's are given up, and its result is sent all the same: the
        coordinator may have it already, and says so."""
        held = self._agent.execution(attempt)
        if held is None or not held.events.unsent:
            return
        try:
            with held.log_lock:
                send_events(self._line, held, ended=True)
        except Refused as refused:
            if refused.code != Code.STALE_ATTEMPT or attempt not in self._asked_about:
                raise
            held.events.given_up = True

    def _upload_artifacts(self, attempt: str, result: Result) -> None:
        if not result.artifacts:
            return
        missing = self._missing_of(attempt, result)
        places = artifacts.stored(self._spool.folder(attempt))
        for each in result.artifacts:
            if each.sha256 in missing and each.path in places:
                self._line.coordinator.upload(places[each.path], each.sha256, each.size, missing.pop(each.sha256))

    def _missing_of(self, attempt: str, result: Result) -> dict[str, str]:
        """The blobs of this result that the store lacks. It is asked about the next few results too, in one go."""
        if attempt not in self._missing:
            wanted = {attempt: [each.sha256 for each in result.artifacts]}
            with self._lock:
                following = list(islice(self._uploads, ASK_RESULTS))
            for name in following:
                other = self._result(name)
                if other is not None and sum(map(len, wanted.values())) + len(other.artifacts) <= ASK_DIGESTS:
                    wanted[name] = [each.sha256 for each in other.artifacts]
            lacking = self._line.coordinator.missing(sorted({sha256 for each in wanted.values() for sha256 in each}))
            for name, digests in wanted.items():
                self._missing[name] = {sha256: lacking[sha256] for sha256 in digests if sha256 in lacking}
        return self._missing.pop(attempt)

    def _upload_log(self, attempt: str, result: Result) -> None:
        """Send the log up to where the result's own tail begins."""
        held = self._agent.execution(attempt)
        end = result.log.offset if result.log is not None else result.log_size
        if held is None:
            return
        with held.log_lock:
            while held.log_sent < end:
                data = held.read_log(held.log_sent, min(LOG_PART, end - held.log_sent))
                if not data:
                    return
                held.log_sent = self._line.coordinator.log(attempt, held.log_sent, data, self._line.session)

    def _ask_about(self, attempt: str) -> float:
        """Let a heartbeat take the attempt up again, if that can be; the seconds until the next try."""
        self._to_the_end()
        if not self._heart.ask_about(attempt):
            return ASK_AGAIN_SECONDS
        self._asked_about.add(attempt)
        return 0.0

    def _upload_refused(self, attempt: str, refused: Refused) -> None:
        if refused.code == Code.STALE_ATTEMPT:
            self._agent.settle({attempt: "stale"})
            self._asked_about.discard(attempt)
        elif refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        elif (tries := self._tries.get(attempt, 0)) < UPLOAD_TRIES and refused.code != Code.TOO_LARGE:
            # A damaged part is refused by its digest: sent again, it may arrive whole.
            self._tries[attempt] = tries + 1
            with self._lock:
                self._uploads.append(attempt)
        else:
            self._replace(attempt, f"the output could not be uploaded: {refused.message}")

    def _replace(self, attempt: str, reason: str) -> None:
        """Report an error instead: without what could not be uploaded, but with the log if that is not the trouble."""
        told = self._result(attempt)
        error = Result(attempt=attempt, outcome=Outcome.ERROR.value, reason=reason[:2000])
        if told is not None and told.artifacts:
            error = replace(told, outcome=error.outcome, reason=error.reason, exit_code=None, artifacts=[], result=None)
        self._spool.ended(Ended(attempt, error))
        self._results.put([attempt])

    def _complete(self, attempt: str, result: Result) -> bool:
        held = self._agent.execution(attempt)
        if result.artifacts or (held is not None and held.events.unsent):
            return False
        if result.log is not None:
            return result.log.offset == 0 or (held is not None and held.log_sent >= result.log.offset)
        return result.log_size == 0 or held is None or held.log_sent >= result.log_size

    def _result(self, attempt: str) -> Result | None:
        entry = self._spool.entries.get(attempt)
        return entry.result if entry is not None else None
