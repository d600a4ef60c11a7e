"""A unit of work: one transaction, who asked for it, and its time; and the only place that moves a job from one state
to another, by one method per transition.

Each transition asks the table in lifecycle.py, then changes the job, its attempt and the history in the transaction of
the unit. A job that is no longer in the state the caller saw is refused, never overwritten. What the transitions add up
to for runs and steps is settled when the unit closes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from deborgen_shared.messages import Result
from deborgen_shared.states import Outcome, State

from .. import ids
from ..leases import Verdict, lease_end
from ..lifecycle import Event, InvalidTransition, advance
from ..storage import attempts, jobs, lease_clock, runs
from ..storage.rows import HeldAttempt, WorkerRow
from ..storage.transactions import Tx
from .steps import settle

if TYPE_CHECKING:
    from types import TracebackType

    from .context import Actor, Context

#: A job that a machine could not run, or gave back, is kept from that machine for this many seconds.
AVOID_SECONDS = 60.0
_encode = msgspec.json.Encoder().encode
_encode_in_order = msgspec.json.Encoder(order="deterministic").encode


class About(NamedTuple):
    """What an event is about: a job or one of its attempts, by the job's key, and a worker. The key of a whole run has
    the index 0."""

    job: int | None = None
    attempt: int | None = None
    worker: str | None = None

    @classmethod
    def held(cls, held: HeldAttempt) -> About:
        return cls(held.job, held.number, held.worker)


class Refused(InvalidTransition):
    """A transition that was refused, and which attempt or job it was about."""

    def __init__(self, state: State, event: Event, about: About) -> None:
        super().__init__(state, event)
        self.about = about


class Ending(NamedTuple):
    """How an attempt ended. `named` says that its worker named it at least once; a result always does."""

    outcome: Outcome
    reason: str
    seconds: float
    named: bool = False
    began_at: float | None = None
    result: Result | None = None
    digest: str | None = None


class Work:
    """`ctx.work(actor, body)` runs a body with its unit; where a transaction is at hand, `with Work(ctx, tx, actor)`.

    The time is read once, when the unit opens: within its transaction, after all that it has waited for.
    """

    def __init__(self, ctx: Context, tx: Tx, actor: Actor) -> None:
        self.ctx, self.tx, self.actor = ctx, tx, actor
        self.now = ctx.clock.wall()
        self._by = str(actor)
        self._clock: float | None = None
        self._counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._ended: defaultdict[tuple[int, int], Counter[str]] = defaultdict(Counter)

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is None:
            self.settle_steps()
            if self._counts:
                runs.move(self.tx, self._counts, self.now)

    @property
    def clock(self) -> float:
        """The lease clock, read once per unit, when it is first asked for."""
        if self._clock is None:
            self._clock = lease_clock.read(self.tx)
        return self._clock

    @property
    def lease_end(self) -> float:
        """When a lease ends that is granted or renewed now, on the lease clock."""
        return lease_end(self.clock, self.ctx.settings.lease_seconds)

    def record(
        self, type_: str, about: About, *, old: str | None = None, new: str | None = None, data: Any = None
    ) -> None:
        """Append an event to the history."""
        text = _encode(data).decode() if data else None
        self.tx.record((self.now, type_, *about, self._by, old, new, text))

    def wake(self, signal: str) -> None:
        """Wake those who wait for the signal, once this is committed."""
        self.tx.wake(signal)

    def start(self, picked: Sequence[tuple[int, int]], worker: WorkerRow, expires_at: datetime) -> None:
        """queued → running: the jobs, each with the number of its new attempt. The attempts' rows are the caller's."""
        state = advance(State.QUEUED, Event.CLAIMED)
        if jobs.start(self.tx, [job for job, _ in picked], worker.id, self.now) != len(picked):
            about = About(self._not_started(picked, worker.name), worker=worker.name)
            raise Refused(State.RUNNING, Event.CLAIMED, about)
        for job, number in picked:
            about = About(job, number, worker.name)
            self.record("lease.granted", about, data={"lease_expires_at": expires_at})
            self._move("job.started", about, State.QUEUED, state)

    def _not_started(self, picked: Sequence[tuple[int, int]], worker: str) -> int:
        """The first of the picked jobs that the worker did not get."""
        for job, number in picked:
            row = jobs.get(self.tx, job)
            if row is None or row.state is not State.RUNNING or (row.last_attempt, row.worker) != (number, worker):
                return job
        return picked[0][0]

    def resume(self, held: HeldAttempt, session: str) -> None:
        """queued → running: the worker that had been given up is back before anybody else took the job."""
        state = self._advance(held, Event.RESUMED)
        if not jobs.resume(self.tx, held.job, held.number, held.worker_id, held.claimed_at, count=held.never_named):
            raise Refused(held.job_state, Event.RESUMED, About.held(held))
        attempts.resume(self.tx, held.job, held.number, session, self.lease_end)
        self._move("lease.resumed", About.held(held), State.QUEUED, state)

    def begin(self, held: HeldAttempt, seconds_ago: float | None) -> float | None:
        """When the program of an attempt began, by its worker's word; the first word counts, and goes into the history.

        The caller stores this moment together with its other changes to the attempt.
        """
        if seconds_ago is None or held.began_at is not None:
            return held.began_at
        began_at = min(self.now, max(held.claimed_at, self.now - seconds_ago))
        data = {"started_at": datetime.fromtimestamp(began_at, UTC)}
        self.record("attempt.started", About.held(held), data=data)
        return began_at

    def conclude(self, held: HeldAttempt, verdict: Verdict, ending: Ending) -> None:
        """running → queued, succeeded, failed or canceled: an attempt has ended, and with it this try of its job."""
        result = ending.result
        told = dict[str, Any]() if result is None else {
            "exit_code": result.exit_code, "cpu_seconds": result.cpu_seconds, "peak_memory": result.peak_memory,
            "image": result.image, "log_told": result.log_size,
        }  # fmt: skip
        ended = attempts.end(
            self.tx, held.job, held.number, ending.outcome, reason=ending.reason, now=self.now, seconds=ending.seconds,
            digest=ending.digest, named=ending.named or result is not None,
            began_at=held.began_at if ending.began_at is None else ending.began_at, **told,
        )  # fmt: skip
        if not ended:
            raise Refused(held.job_state, verdict.event, About.held(held))
        state = self._advance(held, verdict.event)
        if state is State.QUEUED:
            self._requeue(held, verdict, ending.outcome)
        else:
            self._finish(held, verdict, ending, state)

    def _finish(self, held: HeldAttempt, verdict: Verdict, ending: Ending, state: State) -> None:
        result = ending.result
        done = jobs.finish(
            self.tx, held.job, held.number, state, reason=verdict.reason,
            exit_code=result.exit_code if result else None,
            result=_encode_in_order(result.result).decode() if result and result.result is not None else None,
            warnings=_encode_in_order(result.warnings).decode() if result and result.warnings else None,
            now=self.now,
        )  # fmt: skip
        if not done:
            raise Refused(held.job_state, verdict.event, About.held(held))
        self._ended[ids.run_of(held.job), held.job_step][state] += 1
        data = {"outcome": ending.outcome.value} | ({"reason": verdict.reason} if verdict.reason else {})
        self._move(f"job.{state}", About.held(held), held.job_state, state, data)
        if self.ctx.settings.max_running_per_submitter:
            self.wake("jobs")  # the submitter may have another one running now

    def _requeue(self, held: HeldAttempt, verdict: Verdict, outcome: Outcome) -> None:
        wait_clock = self.clock + verdict.backoff if verdict.backoff > 0 else None
        about = About.held(held)
        done = jobs.requeue(
            self.tx, held.job, held.number, reason=verdict.reason, refund=verdict.refund, wait_clock=wait_clock,
            avoid=held.worker_id if verdict.avoid else 0, avoid_clock=self.clock + verdict.backoff + AVOID_SECONDS,
        )  # fmt: skip
        if not done:
            raise Refused(held.job_state, verdict.event, about)
        if outcome is Outcome.RELEASED:
            self.record("lease.released", about, data={"reason": verdict.reason} if verdict.reason else None)
        data = {"outcome": outcome.value, "reason": verdict.reason, "backoff_seconds": verdict.backoff}
        self._move(f"job.{State.QUEUED}", about, held.job_state, State.QUEUED, data)
        if wait_clock is None:
            self.wake("jobs")

    def cancel_queued(self, first: int, last: int, reason: str, because_of: str | None = None) -> list[int]:
        """queued → canceled: every queued job in that span of keys. A promise: none of them will start.

        `because_of` is the step that they need and that did not succeed; None if somebody asked for the cancel.
        """
        state = advance(State.QUEUED, Event.CANCELED)
        canceled = jobs.cancel_queued(self.tx, first, last, reason, self.now)
        data = ({"reason": reason} if reason else {}) | ({"step": because_of} if because_of is not None else {})
        for job, step in canceled:
            self._ended[ids.run_of(job), step][state] += 1
            self._move(f"job.{state}", About(job), State.QUEUED, state, data)
        return [job for job, _ in canceled]

    def _advance(self, held: HeldAttempt, event: Event) -> State:
        try:
            return advance(held.job_state, event)
        except InvalidTransition:
            raise Refused(held.job_state, event, About.held(held)) from None

    def _move(self, type_: str, about: About, old: State, new: State, data: dict[str, Any] | None = None) -> None:
        """Tell of a transition that was made: in the history now, in the counts of the run when the unit closes."""
        assert about.job is not None
        counts = self._counts[ids.run_of(about.job)]
        counts[old] -= 1
        counts[new] += 1
        self.record(type_, about, old=old, new=new, data=data)

    def settle_steps(self) -> None:
        """Carry what has ended on to the steps: the next ones may start, or are canceled with the one they need.

        It comes at the close by itself; a body that goes on to look for ready jobs calls it before.
        """
        while self._ended:
            (run, number), states = self._ended.popitem()
            settle(self, run, number, states)
