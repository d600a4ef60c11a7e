"""Sends the results in the spool until they are acknowledged, in batches. Artifacts and logs are uploaded first."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from itertools import islice

from msgspec.structs import replace

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.errors import Code
from deborgen_shared.messages import Finish, Finished, MissingBlob, NextClaim, Result
from deborgen_shared.states import Outcome, ResultAnswer
from deborgen_worker import artifacts
from deborgen_worker.agent import Agent
from deborgen_worker.checkpoints import CannotSave
from deborgen_worker.claims import Claims
from deborgen_worker.contact import Link
from deborgen_worker.crash import crash_point
from deborgen_worker.heartbeat import HeartbeatLoop, Superseded
from deborgen_worker.log_pump import LOG_PART_BYTES, send_events
from deborgen_worker.spool import ResultRecord, Spool
from deborgen_worker.store_patience import StorePatience

#: A finish carries at most this many results, and at most this many bytes of logs and lists of artifacts.
BATCH = 256
BATCH_BYTES = 512 * 1024
#: Give up uploading the artifacts, events and log of an attempt after this many tries.
UPLOAD_TRIES = 5
#: Ask for the missing blobs of at most this many results at once, and of at most this many digests.
QUERY_RESULTS = 32
QUERY_DIGESTS = 1000
#: If there is nothing to send, the next step comes when it is woken, or after this many seconds at the latest.
UNTIL_WOKEN_SECONDS = 3600.0
#: If the coordinator does not say whether a stale attempt may be resumed, ask again after this many seconds.
ASK_AGAIN_SECONDS = 1.0
#: While jobs run, wait this many seconds between two finishes, so that results share a request.
GROUP_SECONDS = 0.04
#: With free slots, wait only this many seconds between two finishes, because a finish also brings the next jobs.
SHORT_SECONDS = 0.02


#: Refusals that concern the attempt or the worker, or a moment in which the coordinator cannot take the checkpoint.
NOT_ABOUT_THE_CHECKPOINT = frozenset({
    Code.STALE_ATTEMPT, Code.SUPERSEDED, Code.UNAUTHENTICATED, Code.FORBIDDEN, Code.UNAVAILABLE, Code.SLOW_DOWN,
})  # fmt: skip


class ResultQueue:
    """The names of attempts whose results are new in the spool, for the outbox."""

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
    """Two queues: `step` sends results whose uploads are complete, and `step_uploads` uploads what the others need."""

    def __init__(
        self, agent: Agent, spool: Spool, link: Link, heartbeats: HeartbeatLoop, claims: Claims, results: ResultQueue
    ) -> None:  # fmt: skip
        self._agent, self._spool, self._link, self._heartbeats, self._claims = agent, spool, link, heartbeats, claims
        self._results = results
        self._ready: deque[str] = deque()
        self._uploads: deque[str] = deque()
        self._lock = threading.Lock()
        self._sent_at = -1.0
        self._tries: dict[str, int] = {}
        self._missing: dict[str, dict[str, MissingBlob]] = {}
        self._store = StorePatience(agent.clock)
        self._asked_about: set[str] = set()

    def _sort_new_results(self) -> None:
        """Put each new result into one of the two queues. If one needs uploads, claim more work at once."""
        slow = False
        for attempt in self._results.take():
            result = self._result(attempt)
            if result is None:
                continue
            complete = self._is_complete(attempt, result)
            with self._lock:
                (self._ready if complete else self._uploads).append(attempt)
            slow |= not complete
        if slow:
            self._results.uploads.set()
            self._agent.request_work()

    @property
    def empty(self) -> bool:
        return not self._spool.unsent()

    def step(self) -> float:
        """Send one batch. Returns the seconds until the next step."""
        self._sort_new_results()
        early = self._sent_at - self._agent.clock()
        carries_claim = self._agent.would_claim() is not None
        if carries_claim:  # free slots must not wait
            early += SHORT_SECONDS if self._agent.busy_with_short_jobs() else 0.0
        elif self._agent.read_state(lambda machine, _: bool(machine.ledger.running)):
            early += GROUP_SECONDS
        if early > 0 and len(self._ready) < BATCH:
            self._claims.finish_coming = carries_claim and bool(self._ready)
            return early  # more results are about to come and can share the request
        batch = self._take_batch()
        self._claims.finish_coming = bool(batch) or self._claims.has_outgrown()
        if not self._claims.finish_coming:
            return UNTIL_WOKEN_SECONDS
        try:
            delay = self._send_with_claim(batch)
        finally:
            self._claims.finish_coming = False
        if self._link.contact.lost_since is None:
            self._agent.request_work()
        return delay

    def _send_with_claim(self, batch: list[Result]) -> float:
        self._sent_at = self._agent.clock()
        try:
            gives_back = any(each.outcome == Outcome.RELEASED.value for each in batch)
            claim = None if gives_back else self._claims.ask()  # the claim could bring back the job just released
            self._spool.commit()
            crash_point("after-result-written")
        except BaseException:
            self._requeue(batch)
            raise
        return self._send(batch, claim)

    def _take_batch(self) -> list[Result]:
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
                    batch.append(self._with_age(result))
                self._ready.popleft()
        return batch

    def _with_age(self, result: Result) -> Result:
        """The result with the time since its program began."""
        began = self._spool.began(result.attempt)
        if began is None or result.outcome == Outcome.RELEASED.value:
            return result
        return replace(result, began_seconds_ago=max(0.0, self._agent.lease_clock() - began))

    def _send(self, batch: list[Result], claim: NextClaim | None = None) -> float:
        sent = self._agent.lease_clock()
        try:
            answer = self._link.coordinator.finish(Finish(session=self._link.session, results=batch, claim=claim))
        except NoAnswer as error:
            self._requeue(batch)
            return self._link.contact.failed("finish", error)
        except Refused as refused:
            if claim is not None:
                self._claims.drop(claim)
            if claim is not None and refused.code not in {Code.SUPERSEDED, Code.UNAUTHENTICATED, Code.FORBIDDEN}:
                return self._send(batch)  # it may have been refused because of the claim
            return self._when_refused(batch, refused)
        self._link.contact.ok("finish")
        crash_point("after-result-sent")
        try:
            if claim is not None:
                self._claims.take_answer(claim, answer.assignments or None, sent, answer.waited_seconds or 0.0)
        finally:
            self._settle(batch, answer)
        return 0.0 if self._ready else UNTIL_WOKEN_SECONDS

    def _settle(self, batch: list[Result], answer: Finished) -> None:
        settled: dict[str, str] = {}
        for result in batch:
            word = answer.results.get(result.attempt)
            if word == ResultAnswer.MISSING_BLOBS:
                self._upload_again(result.attempt)
            elif word is not None:
                settled[result.attempt] = word
            else:
                self._requeue([result])
        self._agent.settle(settled)
        crash_point("after-settled")

    def _when_refused(self, batch: list[Result], refused: Refused) -> float:
        if refused.code == Code.SUPERSEDED:
            self._requeue(batch)
            raise Superseded(refused.message)
        if refused.status == 401:
            self._requeue(batch)
            return 10.0
        if len(batch) > 1:  # find out which result is refused
            return self._send_each(batch)
        if refused.status == 403:  # the attempt belongs to another worker, or the token to another role: try later
            with self._lock:
                self._ready.append(batch[0].attempt)
            return 10.0
        result = batch[0]
        if result.outcome == Outcome.ERROR.value and not result.artifacts and result.log is None:
            self._link.say(f"the coordinator refused the result of {result.attempt}: {refused.message}")
            self._agent.settle({result.attempt: "refused"})
            return 0.0
        plain = Result(
            attempt=result.attempt, outcome=Outcome.ERROR.value, seconds=result.seconds,
            reason=f"the coordinator refused the result ({result.outcome}): {refused.message}"[:2000],
        )  # fmt: skip
        self._spool.ended(ResultRecord(plain.attempt, plain))
        self._requeue([plain])
        return 0.0

    def _send_each(self, batch: list[Result]) -> float:
        delays: list[float] = []
        for at, result in enumerate(batch):
            try:
                delays.append(self._send([result]))
            except Superseded:
                self._requeue(batch[at + 1 :])
                raise
        return min(delays)

    def _upload_again(self, attempt: str) -> None:
        """Upload the missing artifacts again. After too many tries the attempt ends with the outcome `error`."""
        tries = self._tries[attempt] = self._tries.get(attempt, 0) + 1
        if tries > UPLOAD_TRIES:
            return self._report_error(attempt, f"the coordinator still lacks the artifacts after {tries} uploads")
        with self._lock:
            self._uploads.append(attempt)
        self._results.uploads.set()
        return None

    def _requeue(self, batch: list[Result]) -> None:
        with self._lock:
            self._ready.extendleft(result.attempt for result in reversed(batch))

    def _move_to_end(self) -> None:
        """Let the other uploads go first."""
        with self._lock:
            self._uploads.rotate(-1)

    # Uploads that must come before the result

    def step_uploads(self) -> float:
        """Upload what one result needs: the remaining events of the program, the artifacts, and the rest of the log."""
        self._sort_new_results()
        with self._lock:
            if not self._uploads:
                return UNTIL_WOKEN_SECONDS
            attempt = self._uploads[0]
        self._spool.commit()
        result = self._result(attempt)
        try:
            if result is not None:
                self._upload_events(attempt)
                if result.outcome == Outcome.RELEASED.value:
                    self._upload_checkpoint(attempt)
                self._upload_artifacts(attempt, result)
                self._upload_log(attempt, result)
        except NoAnswer as error:
            if error.of_store:
                return self._store_failed(attempt, error)
            self._move_to_end()
            return self._link.contact.failed("upload", error)
        except Refused as refused:
            if refused.status in {401, 403}:  # keep everything until there is a new token
                self._move_to_end()
                return 10.0
            if refused.code == Code.STALE_ATTEMPT and attempt not in self._asked_about:
                return self._ask_about(attempt)
            self._upload_refused(attempt, refused)
            result = None
        except OSError as error:
            self._link.say(f"the output of {attempt} cannot be read: {error}")
            self._report_error(attempt, f"the output cannot be read: {error.strerror or error}")
            result = None
        else:
            self._link.contact.ok("upload")
            self._store.ok(attempt)
            self._asked_about.discard(attempt)
        with self._lock:
            self._uploads.popleft()
            self._missing.pop(attempt, None)
            if result is not None:
                self._ready.append(attempt)
                self._results.woken.set()
        return 0.0

    def _store_failed(self, attempt: str, error: NoAnswer) -> float:
        """Try again later. After the last try, the attempt ends with the outcome `error`."""
        self._link.contact.ok("upload")
        pause = self._store.failed(attempt, error)
        if pause is not None:
            self._move_to_end()
            return pause
        self._link.say(f"the artifacts of {attempt} are given up: {error}")
        self._report_error(attempt, f"the artifacts could not be uploaded: {error}")
        with self._lock:
            self._uploads.popleft()
            self._missing.pop(attempt, None)
        return 0.0

    def _upload_events(self, attempt: str) -> None:
        """Send the remaining events. The events of a stale attempt are given up.

        Its result is still sent: the coordinator may already have it, and then says so.
        """
        held = self._agent.execution(attempt)
        if held is None or not held.events.unsent:
            return
        try:
            with held.log_lock:
                send_events(self._link, held, ended=True)
        except Refused as refused:
            if refused.code != Code.STALE_ATTEMPT or attempt not in self._asked_about:
                raise
            held.events.given_up = True

    def _upload_checkpoint(self, attempt: str) -> None:
        """Save the last checkpoint of a job that is given back. If that is impossible, the one before stays."""
        held = self._agent.execution(attempt)
        saved = held.checkpoints if held is not None else None
        if saved is None or saved.pending is None:
            return
        try:
            saved.upload(self._link.coordinator, attempt, self._link.session)
        except Refused as refused:
            if refused.code in NOT_ABOUT_THE_CHECKPOINT:
                raise
            saved.give_up(refused.message)
            self._link.say(f"the coordinator refused the checkpoint of {attempt}: {refused.message}")
        except (CannotSave, OSError) as problem:
            saved.give_up(str(problem))
            self._link.say(f"the last checkpoint of {attempt} could not be saved: {problem}")

    def _upload_artifacts(self, attempt: str, result: Result) -> None:
        if not result.artifacts:
            return
        missing = self._missing_of(attempt, result)
        places = artifacts.stored(self._spool.folder(attempt))
        for each in result.artifacts:
            if each.sha256 in missing and each.path in places:
                self._link.coordinator.upload(places[each.path], each.sha256, each.size, missing.pop(each.sha256))

    def _missing_of(self, attempt: str, result: Result) -> dict[str, MissingBlob]:
        """The blobs of this result that the coordinator lacks. One call also covers the next few results."""
        if attempt not in self._missing:
            wanted = {attempt: [each.sha256 for each in result.artifacts]}
            with self._lock:
                following = list(islice(self._uploads, QUERY_RESULTS))
            for name in following:
                other = self._result(name)
                if other is not None and sum(map(len, wanted.values())) + len(other.artifacts) <= QUERY_DIGESTS:
                    wanted[name] = [each.sha256 for each in other.artifacts]
            lacking = self._link.coordinator.missing(sorted({sha256 for each in wanted.values() for sha256 in each}))
            for name, digests in wanted.items():
                self._missing[name] = {sha256: lacking[sha256] for sha256 in digests if sha256 in lacking}
        return self._missing.pop(attempt)

    def _upload_log(self, attempt: str, result: Result) -> None:
        """Send the log up to the part that goes with the result."""
        held = self._agent.execution(attempt)
        end = result.log.offset if result.log is not None else result.log_size
        if held is None:
            return
        with held.log_lock:
            while held.log_sent < end:
                data = held.read_log(held.log_sent, min(LOG_PART_BYTES, end - held.log_sent))
                if not data:
                    return
                held.log_sent = self._link.coordinator.log(attempt, held.log_sent, data, self._link.session)

    def _ask_about(self, attempt: str) -> float:
        """Name a stale attempt in a heartbeat, so that it is resumed if possible. Returns the seconds until the
        retry."""
        self._move_to_end()
        if not self._heartbeats.ask_about(attempt):
            return ASK_AGAIN_SECONDS
        self._asked_about.add(attempt)
        return 0.0

    def _upload_refused(self, attempt: str, refused: Refused) -> None:
        if refused.code == Code.STALE_ATTEMPT:
            self._agent.settle({attempt: ResultAnswer.STALE})
            self._asked_about.discard(attempt)
        elif refused.code == Code.SUPERSEDED:
            raise Superseded(refused.message)
        elif (tries := self._tries.get(attempt, 0)) < UPLOAD_TRIES and refused.code != Code.TOO_LARGE:
            # A damaged part is refused because of its digest. It may arrive intact if it is sent again.
            self._tries[attempt] = tries + 1
            with self._lock:
                self._uploads.append(attempt)
        else:
            self._report_error(attempt, f"the output could not be uploaded: {refused.message}")

    def _report_error(self, attempt: str, reason: str) -> None:
        """Replace the result with an error. If it had artifacts, only they are dropped, and the log stays."""
        stored = self._result(attempt)
        error = Result(attempt=attempt, outcome=Outcome.ERROR.value, reason=reason[:2000])
        if stored is not None and stored.artifacts:
            error = replace(
                stored, outcome=error.outcome, reason=error.reason, exit_code=None, artifacts=[], result=None
            )
        self._spool.ended(ResultRecord(attempt, error))
        self._results.put([attempt])

    def _is_complete(self, attempt: str, result: Result) -> bool:
        held = self._agent.execution(attempt)
        if result.artifacts or (held is not None and held.events.unsent):
            return False
        if held is not None and held.checkpoints is not None and held.checkpoints.pending is not None:
            return result.outcome != Outcome.RELEASED.value
        if result.log is not None:
            return result.log.offset == 0 or (held is not None and held.log_sent >= result.log.offset)
        return result.log_size == 0 or held is None or held.log_sent >= result.log_size

    def _result(self, attempt: str) -> Result | None:
        entry = self._spool.entries.get(attempt)
        return entry.result if entry is not None else None
