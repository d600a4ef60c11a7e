"""A unit of work: one transaction with its actor and its time. Only this module changes the state of a job, with one
method per transition.

Each transition consults the table in lifecycle.py, then changes the job, its attempt and the history in the unit's
transaction. If the job is no longer in the expected state, the transition is refused and nothing is overwritten. The
counts of runs and steps are updated when the unit closes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from deborgen_shared import headers
from deborgen_shared.messages import Result
from deborgen_shared.states import Outcome, State

from .. import ids
from ..leases import Verdict, lease_end
from ..lifecycle import InvalidTransition, LifecycleEvent, advance
from ..loops import Place, following
from ..storage import attempts, checkpoints, jobs, lease_clock, runs
from ..storage.rows import HeldAttempt, WorkerRow
from ..storage.transactions import Tx
from .rounds import DueJob
from .steps import settle
from .usage import UsageTally

if TYPE_CHECKING:
    from types import TracebackType

    from deborgen_shared.jobfile.model import JobResources

    from .context import Actor, Context

#: For this many seconds, a worker that could not run a job, or gave it back, gets it only if no other worker could.
AVOID_SECONDS = 60.0
_encode = msgspec.json.Encoder().encode
_encode_in_order = msgspec.json.Encoder(order="deterministic").encode


class About(NamedTuple):
    """The subject of an event: a job or one of its attempts, and a worker. `job` is the job's id. For an event of a
    whole run it is an id with the index 0."""

    job: int | None = None
    attempt: int | None = None
    worker: str | None = None

    @classmethod
    def attempt_of(cls, held: HeldAttempt) -> About:
        return cls(held.job, held.number, held.worker)


class RefusedTransition(InvalidTransition):
    """A refused transition, with its job or attempt."""

    def __init__(self, state: State, event: LifecycleEvent, about: About) -> None:
        super().__init__(state, event)
        self.about = about


class AttemptEnding(NamedTuple):
    """How an attempt ended. `named` says that a heartbeat mentioned it at least once; with a result it always counts as
    named."""

    outcome: Outcome
    reason: str
    seconds: float
    named: bool = False
    began_at: float | None = None
    result: Result | None = None
    digest: str | None = None


class Work:
    """`ctx.work(actor, body)` runs a body with a new unit. Inside a transaction use `with Work(ctx, tx, actor)`.

    `now` is read once, when the transaction has begun: after any wait for other transactions, not before it.
    """

    def __init__(self, ctx: Context, tx: Tx, actor: Actor) -> None:
        self.ctx, self.tx, self.actor = ctx, tx, actor
        self.now = ctx.clock.wall()
        self._by = str(actor)
        self._clock: float | None = None
        #: By run: how the numbers of its jobs in each state change.
        self._counts: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        #: By run and step: how many jobs have ended in each state.
        self._ended: defaultdict[tuple[int, int], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        #: By run and step: the jobs of loops that are due because of these ends.
        self._due: defaultdict[tuple[int, int], list[DueJob]] = defaultdict(list)
        #: By run: how many jobs loops have added.
        self.added: defaultdict[int, int] = defaultdict(int)
        self._usage = UsageTally()

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is None:
            self.settle_steps()
            if self._counts:
                runs.change_counts(self.tx, self._counts, self.added, self.now)
            self._usage.store(self.tx)

    @property
    def clock(self) -> float:
        """The lease clock, read once per unit, on first use."""
        if self._clock is None:
            self._clock = lease_clock.read(self.tx)
        return self._clock

    @property
    def lease_end(self) -> float:
        """The end, on the lease clock, of a lease that is granted or renewed now."""
        return lease_end(self.clock, self.ctx.settings.lease_seconds)

    def record(
        self, type_: str, about: About, *, old: str | None = None, new: str | None = None, data: Any = None
    ) -> None:
        """Append an event to the history."""
        text = _encode(data).decode() if data else None
        self.tx.record((self.now, type_, *about, self._by, old, new, text))

    def wake(self, signal: str) -> None:
        """Wake the requests that wait for the signal, after the commit."""
        self.tx.wake(signal)

    def start(
        self, picked: Sequence[tuple[int, int]], worker: WorkerRow, expires_at: datetime, traces: Mapping[int, str]
    ) -> None:
        """queued → running. `picked` has each job with the number of its new attempt, whose row the caller inserts.

        `traces` has the traces that runs belong to, by the number of the run.
        """
        state = advance(State.QUEUED, LifecycleEvent.CLAIMED)
        if jobs.start(self.tx, [job for job, _ in picked], worker.id, self.now) != len(picked):
            about = About(self._not_started(picked, worker.name), worker=worker.name)
            raise RefusedTransition(State.RUNNING, LifecycleEvent.CLAIMED, about)
        for job, number in picked:
            about = About(job, number, worker.name)
            trace = {headers.TRACEPARENT: traces[ids.run_of(job)]} if ids.run_of(job) in traces else {}
            self.record("lease.granted", about, data={"lease_expires_at": expires_at, **trace})
            self._record_move("job.started", about, State.QUEUED, state)

    def _not_started(self, picked: Sequence[tuple[int, int]], worker: str) -> int:
        """The first of the picked jobs that the worker did not get."""
        for job, number in picked:
            row = jobs.get(self.tx, job)
            if row is None or row.state is not State.RUNNING or (row.last_attempt, row.worker) != (number, worker):
                return job
        return picked[0][0]

    def resume(self, held: HeldAttempt, session: str) -> None:
        """queued → running: the coordinator gave the attempt up, but its worker is back before another claimed the
        job."""
        state = self._advance(held, LifecycleEvent.RESUMED)
        if not jobs.resume(self.tx, held.job, held.number, held.worker_id, held.claimed_at, count=held.never_named):
            raise RefusedTransition(held.job_state, LifecycleEvent.RESUMED, About.attempt_of(held))
        ended = attempts.ending(self.tx, held.job, held.number)
        if ended is not None:
            self._usage.take_back(held, self._asked(held), *ended)
        attempts.resume(self.tx, held.job, held.number, session, self.lease_end)
        self._record_move("lease.resumed", About.attempt_of(held), State.QUEUED, state)

    def note_program_start(self, held: HeldAttempt, seconds_ago: float | None) -> float | None:
        """When an attempt's program started, according to its worker. The first report counts and is recorded.

        The caller stores the start together with its other changes to the attempt.
        """
        if seconds_ago is None or held.began_at is not None:
            return held.began_at
        began_at = min(self.now, max(held.claimed_at, self.now - seconds_ago))
        data = {"started_at": datetime.fromtimestamp(began_at, UTC)}
        self.record("attempt.started", About.attempt_of(held), data=data)
        return began_at

    def conclude(self, held: HeldAttempt, verdict: Verdict, ending: AttemptEnding) -> None:
        """running → queued, succeeded, failed or canceled: an attempt has ended."""
        result = ending.result
        reported = dict[str, Any]() if result is None else {
            "exit_code": result.exit_code, "cpu_seconds": result.cpu_seconds, "peak_memory": result.peak_memory,
            "image": result.image, "announced_size": result.log_size,
        }  # fmt: skip
        ended = attempts.end(
            self.tx, held.job, held.number, ending.outcome, reason=ending.reason, now=self.now, seconds=ending.seconds,
            digest=ending.digest, named=ending.named or result is not None,
            began_at=held.began_at if ending.began_at is None else ending.began_at, **reported,
        )  # fmt: skip
        if not ended:
            raise RefusedTransition(held.job_state, verdict.event, About.attempt_of(held))
        self._usage.add(held, self._asked(held), ending.outcome, self.now, ending.seconds)
        state = self._advance(held, verdict.event)
        if state is State.QUEUED:
            self._requeue(held, verdict, ending.outcome)
        else:
            self._finish(held, verdict, ending, state)

    def _finish(self, held: HeldAttempt, verdict: Verdict, ending: AttemptEnding, state: State) -> None:
        result = ending.result
        done = jobs.finish(
            self.tx, held.job, held.number, state, reason=verdict.reason,
            exit_code=result.exit_code if result else None,
            result=_encode_in_order(result.result).decode() if result and result.result is not None else None,
            warnings=_encode_in_order(result.warnings).decode() if result and result.warnings else None,
            now=self.now, verified=verdict.verified,
        )  # fmt: skip
        if not done:
            raise RefusedTransition(held.job_state, verdict.event, About.attempt_of(held))
        if state is State.SUCCEEDED and self.ctx.spec_cache.spec(self.tx, held.spec_id).job.checkpoint is not None:
            checkpoints.remove(self.tx, held.job, held.job)
        self._ended[ids.run_of(held.job), held.job_step][state] += 1
        data = {"outcome": ending.outcome.value} | ({"reason": verdict.reason} if verdict.reason else {})
        self._record_move(f"job.{state}", About.attempt_of(held), held.job_state, state, data)
        if self.ctx.settings.max_running_per_submitter:
            self.wake("jobs")  # the submitter may run another job now
        if verdict.place is not None:
            self._continue_loop(held, verdict.place, verdict.verified, state)

    def _continue_loop(self, held: HeldAttempt, place: Place, verified: bool | None, state: State) -> None:
        """Record the answer of a check, and note which job of the loop is due next."""
        if verified:
            self.record("step.verified", About.attempt_of(held), data={"round": place.round})
        elif verified is False:
            self.record("step.not_verified", About.attempt_of(held), data={"round": place.round})
        if state is State.SUCCEEDED and (due := following(place, verified)):
            self._due[ids.run_of(held.job), held.job_step].append(DueJob(held, due))

    def record_queued(self, job: int, place: Place) -> None:
        """Record a job that a loop has added."""
        data = {"phase": place.phase, "round": place.round}
        self.record(f"job.{State.QUEUED}", About(job), new=State.QUEUED, data=data)

    def _requeue(self, held: HeldAttempt, verdict: Verdict, outcome: Outcome) -> None:
        wait_clock = self.clock + verdict.backoff if verdict.backoff > 0 else None
        about = About.attempt_of(held)
        done = jobs.requeue(
            self.tx, held.job, held.number, reason=verdict.reason, refund=verdict.refund, wait_clock=wait_clock,
            avoid=held.worker_id if verdict.avoid else 0, avoid_clock=self.clock + verdict.backoff + AVOID_SECONDS,
        )  # fmt: skip
        if not done:
            raise RefusedTransition(held.job_state, verdict.event, about)
        if outcome is Outcome.RELEASED:
            self.record("lease.released", about, data={"reason": verdict.reason} if verdict.reason else None)
        data = {"outcome": outcome.value, "reason": verdict.reason, "backoff_seconds": verdict.backoff}
        self._record_move(f"job.{State.QUEUED}", about, held.job_state, State.QUEUED, data)
        if wait_clock is None:
            self.wake("jobs")

    def cancel_queued(self, first: int, last: int, reason: str, because_of: str | None = None) -> list[int]:
        """queued → canceled, for every queued job in the span of ids. None of them will ever start.

        `because_of` is the needed step that did not succeed; None if somebody requested the cancel.
        """
        state = advance(State.QUEUED, LifecycleEvent.CANCELED)
        canceled = jobs.cancel_queued(self.tx, first, last, reason, self.now)
        data = ({"reason": reason} if reason else {}) | ({"step": because_of} if because_of is not None else {})
        for job, step in canceled:
            self._ended[ids.run_of(job), step][state] += 1
            self._record_move(f"job.{state}", About(job), State.QUEUED, state, data)
        return [job for job, _ in canceled]

    def _asked(self, held: HeldAttempt) -> JobResources:
        """The resources that the attempt's job asks for."""
        return self.ctx.spec_cache.spec(self.tx, held.spec_id).job.resources

    def _advance(self, held: HeldAttempt, event: LifecycleEvent) -> State:
        try:
            return advance(held.job_state, event)
        except InvalidTransition:
            raise RefusedTransition(held.job_state, event, About.attempt_of(held)) from None

    def _record_move(
        self, type_: str, about: About, old: State, new: State, data: dict[str, Any] | None = None
    ) -> None:
        """Record a transition in the history, and count it for the run when the unit closes."""
        assert about.job is not None
        counts = self._counts[ids.run_of(about.job)]
        counts[old] -= 1
        counts[new] += 1
        self.record(type_, about, old=old, new=new, data=data)

    def settle_steps(self) -> None:
        """Update the steps whose jobs have ended: loops go on, and steps that need these become ready, or are canceled.

        The unit does this when it closes. A body that looks for ready jobs before that must call it first.
        """
        while self._ended:
            (run, number), states = self._ended.popitem()
            settle(self, run, number, states, self._due.pop((run, number), []))
