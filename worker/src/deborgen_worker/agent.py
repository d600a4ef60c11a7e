"""The only entry point to the worker's state: it takes events, asks `lifecycle` what to do, and carries that out.

It has no thread of its own, and every method may be called from any thread. Quick instructions are carried out at once,
in the order in which they were decided; slow ones (files, images, containers, artifacts) go to `Strands`. Time, disk,
runners and the coordinator are passed in, so the same object runs in a simulation.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from deborgen_shared.messages import Assignment, Result
from deborgen_shared.states import LeaseAnswer, Outcome, ResultAnswer
from deborgen_worker import leases, lifecycle, steps, workspace
from deborgen_worker.attempts import Done, LocalAttempt, Preparing, Running, StopCause, Waiting
from deborgen_worker.cache import BlobCache
from deborgen_worker.capacity import Amount, ClaimSize, Ledger
from deborgen_worker.crash import crash_point
from deborgen_worker.execution import Execution
from deborgen_worker.lifecycle import Machine, Moment
from deborgen_worker.performer import Performer
from deborgen_worker.repositories import Repositories
from deborgen_worker.runners.protocol import CannotStart, Report, Runner
from deborgen_worker.secret_files import SecretFiles
from deborgen_worker.settings import WorkerSettings
from deborgen_worker.spool import ResultRecord, Spool
from deborgen_worker.steps import AttemptEvent
from deborgen_worker.strands import Work

T = TypeVar("T")


class Agent:
    """All attempts of this worker, and the resources they may use.

    `on_room` is called when there is room for another claim, `on_results` with the names of attempts whose results are
    in the spool, and `on_gate` when the gate was closed or opened.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        spool: Spool,
        cache: BlobCache,
        offered: Amount,
        make_runners: Callable[[Report], dict[str, Runner]],
        *,
        clock: Callable[[], float],
        lease_clock: Callable[[], float],
        say: Callable[[str], None],
        run_slow: Callable[[Work], object],
        on_room: Callable[[], None],
        on_results: Callable[[list[str]], None],
        on_gate: Callable[[], None] = lambda: None,
        on_assigned: Callable[[list[Assignment]], None] = lambda assignments: None,
        gpus: Iterable[str] = (),
        secret_files: SecretFiles | None = None,
        repositories: Repositories | None = None,
    ) -> None:
        self._secret_files = secret_files or SecretFiles(None)
        self._settings, self._spool, self._cache, self._say = settings, spool, cache, say
        self.clock, self.lease_clock = clock, lease_clock
        self._on_room, self._on_results, self._on_gate = on_room, on_results, on_gate
        self._on_assigned = on_assigned
        self._lock = threading.RLock()
        self._machine = Machine(Ledger(offered, settings.slots), settings.kill_grace, set(gpus))
        self._machine.keep_frozen = settings.keep_frozen
        self._executions: dict[str, Execution] = {}
        self._events: list[AttemptEvent] = []
        self._handling = False
        self._performer = Performer(
            spool, cache, clock=clock, lease_clock=lease_clock, say=say, run_slow=run_slow, handle=self.handle,
            is_wanted=self._is_wanted, is_saving=self.is_saving, repositories=repositories,
        )  # fmt: skip
        self.runners = make_runners(self.apply_runner_events)

    # The entry point

    def handle(self, events: Iterable[AttemptEvent]) -> None:
        """Decide what to do about these events, and do it. Resulting events are handled before this returns."""
        with self._lock:
            self._events += events
            if self._handling:  # the same thread called this further up the stack
                return
            self._handling = True
            try:
                more = True
                while more:
                    batch, self._events = self._events, []
                    self._carry_out(lifecycle.handle(self._machine, batch, self._now()))
                    more = bool(self._events)
            finally:
                self._handling = False

    def apply_runner_events(self, events: list[AttemptEvent]) -> None:
        """Handle what the runners report: programs that began, ended, or were given back."""
        crash_point("after-exited")
        self.handle(events)

    def tick(self) -> None:
        """Apply time limits, KILL after TERM, the end of waits that take too long, and the owner's freezes."""
        with self._lock:
            self.handle([steps.Ticked(name) for name in self._machine.attempts])

    def read_state(self, view: Callable[[Machine, Mapping[str, Execution]], T]) -> T:
        """Read the state under the lock. The view must return copies, not parts of the state."""
        with self._lock:
            return view(self._machine, self._executions)

    @property
    def is_closed(self) -> bool:
        """Whether no new work may be taken."""
        return self._machine.is_closed

    @property
    def is_busy(self) -> bool:
        """Whether instructions are still being carried out."""
        return self._performer.busy

    def is_running(self, name: str) -> bool:
        """Whether the attempt's program runs. This takes no lock, because threads that hold a log's lock call it."""
        attempt = self._machine.attempts.get(name)
        return attempt is not None and isinstance(attempt.stage, Running)

    def is_saving(self, name: str) -> bool:
        """Whether a checkpoint of this attempt is being copied. This takes no lock."""
        attempt = self._machine.attempts.get(name)
        return attempt is not None and isinstance(attempt.stage, Running) and attempt.stage.saving is not None

    def execution(self, name: str) -> Execution | None:
        return self._executions.get(name)

    def _now(self) -> Moment:
        return Moment(self.clock(), self.lease_clock())

    # What other threads ask for

    def would_claim(self) -> ClaimSize | None:
        """What a claim would ask for now; None if no work may be claimed."""
        with self._lock:
            return None if self._machine.is_closed else self._machine.ledger.would_claim(self.clock())

    def no_prefetch_before(self, moment: float) -> None:
        """Until this moment, claim no more than there is room for."""
        with self._lock:
            self._machine.ledger.prefetch_after = moment

    def accept(self, assignments: Iterable[Assignment], sent: float, waited_seconds: float) -> None:
        """Take attempts that are in the spool, and start those for which there is room. Attempts that cannot run here
        end at once.

        `sent` is when the request that brought them was sent, `waited_seconds` how long it waited at the coordinator.
        """
        given = list(assignments)
        self._on_assigned(given)
        with self._lock:
            for assignment in given:
                if assignment.secrets:
                    self._secret_files.write(assignment.attempt, assignment.secrets)
                start_by = leases.start_by(sent, assignment.lease_seconds, waited_seconds)
                try:
                    self.add(assignment, Waiting(self.clock(), start_by))
                except CannotStart as error:
                    result = Result(attempt=assignment.attempt, outcome=Outcome.ERROR.value, reason=str(error))
                    self._spool.ended(ResultRecord(assignment.attempt, result))
                    self._on_results([assignment.attempt])
            crash_point("after-accepted")
            self.handle([])

    def add(self, assignment: Assignment, stage: Waiting | Running | Done) -> Execution:
        """Take one attempt without starting it yet. Raises `CannotStart` if it cannot run here."""
        spec = workspace.spec_of(assignment)
        if not assignment.secrets and (spec.all_secrets or assignment.push or assignment.pool_image):  # after a restart
            assignment = replace(assignment, secrets=self._secret_files.read(assignment.attempt))
        runner = self.runners.get(spec.runner)
        if runner is None:
            raise CannotStart(f"the job must run as a {spec.runner}, which this worker does not offer")
        if spec.network == "internet" and self._settings.network != "internet":
            raise CannotStart("the owner of this worker does not allow jobs to use the network")
        gone = [name for name in spec.all_secrets if name not in assignment.secrets]
        if gone and isinstance(stage, Waiting):
            raise CannotStart(f"the secret {', '.join(gone)} is no longer there")
        settings, folder = self._settings, self._spool.folder(assignment.attempt)
        launch = workspace.launch_of(
            assignment, spec, folder, pids=settings.pids, tmp_size=settings.tmp_size,
            gives_way=settings.priority == "idle", shared=settings.shared,
        )  # fmt: skip
        execution = Execution(
            assignment, spec, launch, runner, settings.log_cap, assignment.secrets, settings.min_free_disk
        )
        if not isinstance(stage, Waiting) and (commit := assignment.commit or workspace.read_commit(folder)):
            execution.fill_in(commit)
        need = spec.resources
        amount = Amount(need.cpus, need.memory, need.gpus, need.disk)
        can_follow = execution.starts_inline and not need.gpus and hasattr(runner, "follow")
        with self._lock:
            if execution.id not in self._machine.attempts:
                self._executions[execution.id] = execution
                attempt = LocalAttempt(
                    execution.id, amount, assignment.timeout_seconds, stage, execution.starts_inline, can_follow,
                    watchdog=spec.watchdog or 0.0, every=spec.checkpoint.every if spec.checkpoint is not None else 0.0,
                    disk=spec.resources.disk,
                )  # fmt: skip
                self._machine.add(attempt)
        return execution

    def apply_answers(self, answers: Mapping[str, str], sent: float, wanted: Collection[str] = ()) -> None:
        """Apply the coordinator's answer for each attempt: continue, cancel, or stop because it lost its lease.

        `sent` is when the heartbeat was sent. Other machines could run the frozen attempts that are `wanted`.
        """
        events: list[AttemptEvent] = []
        for name, word in answers.items():
            execution = self._executions.get(name)
            if execution is None or self._is_done(name):
                continue
            if word == LeaseAnswer.CONTINUE:
                start_by = leases.start_by(sent, execution.assignment.lease_seconds)
                events.append(steps.Renewed(name, start_by, sent, name in wanted))
            elif word == LeaseAnswer.CANCEL:
                events.append(steps.StopAsked(name, StopCause.CANCEL, Outcome.CANCELED))
            elif word == LeaseAnswer.STOP:
                self._say(f"{name} no longer belongs to this worker, stopping it")
                events.append(steps.StopAsked(name, StopCause.STALE))
        self.handle(events)

    def _is_done(self, name: str) -> bool:
        attempt = self._machine.attempts.get(name)
        return attempt is None or isinstance(attempt.stage, Done)

    def stop_all(self, cause: StopCause, reason: str) -> None:
        """End all unfinished attempts, in reverse order, so that no attempt starts in the room of an ended one."""
        with self._lock:
            self.handle([steps.StopAsked(name, cause, reason) for name in reversed(self._machine.attempts)])

    def set_ending(self, reason: str, kill_grace: float | None = None) -> None:
        """Say that this worker is being ended: it takes no new work, and no program is blamed for the same signal.

        This takes no lock, because a signal handler calls it. `kill_grace` shortens the time from TERM to KILL.
        """
        self._machine.ending = reason
        self._machine.kill_grace = min(self._machine.kill_grace, kill_grace or self._machine.kill_grace)

    def settle(self, answers: Mapping[str, str]) -> None:
        """Forget attempts whose end the coordinator has acknowledged. Keep folders of failed jobs if the owner wants
        them."""
        with self._lock:
            for name in answers:
                entry, execution = self._spool.entries.get(name), self._executions.get(name)
                if (
                    self._settings.keep_failed
                    and execution is not None
                    and entry is not None
                    and entry.result is not None
                ):
                    execution.keep_folder = entry.result.outcome not in {Outcome.SUCCEEDED, Outcome.RELEASED}
            unknown = [name for name in answers if name not in self._executions]
            for name in answers:
                self._secret_files.remove(name)
            self._spool.settle(answers)
            self.handle([steps.Settled(name) for name in answers])
            for name in unknown if not self._settings.keep_failed else ():
                self._performer.remove(self._spool.folder(name))

    def set_gate(self, keeper: str, reason: str, until: float | None = None) -> None:
        """Close the gate for this keeper, or open it if the reason is empty. A change is printed for the owner."""
        gate = self._machine.gate
        with self._lock:
            before, known = gate.closed, keeper in gate.reasons
            news = gate.close(keeper, reason, until) if reason else gate.open(keeper)
        if not news:
            return
        if reason and not known:
            self._say(f"taking no new work: {reason}")
        elif not reason:
            self._say("taking work again" if not gate.closed else f"still taking no new work: {gate.reason}")
        if before != gate.closed:
            self.tick()
        self._on_gate()
        self.request_work()

    def set_frozen(self, frozen: lifecycle.OwnersFreeze | None) -> None:
        """Freeze or wake all programs, including programs that start later."""
        with self._lock:
            changed, self._machine.frozen = self._machine.frozen != frozen, frozen
            if changed:
                self.tick()

    def busy_with_short_jobs(self) -> bool:
        """Whether jobs end in quick succession, so that their results should share a request."""
        with self._lock:
            return self._machine.ledger.prefetch_limit(self.clock()) > 0

    def request_work(self) -> None:
        """Ask for more work, if there is room for it."""
        if self.would_claim() is not None:
            self._on_room()

    def has_unreported_program(self, seconds: float) -> bool:
        """Whether a program began at least this many seconds ago and no heartbeat has named its attempt since."""
        before = self.lease_clock() - seconds

        def is_unnamed(stage: Any) -> bool:
            stale = isinstance(stage, Running) and stage.stop is not None and stage.stop.cause is StopCause.STALE
            return isinstance(stage, Running) and not stage.reported and not stale and 0 < stage.began <= before

        return self.read_state(lambda machine, _: any(is_unnamed(each.stage) for each in machine.attempts.values()))

    def images(self) -> list[str]:
        """The ids of the pool's images on this machine."""
        return [digest for runner in self.runners.values() if hasattr(runner, "images") for digest in runner.images()]

    def deliver_result(self, name: str) -> None:
        """Send a result that an earlier session left in the spool."""
        self._on_results([name])

    def cleanup(self) -> None:
        """Remove leftovers: programs, containers and folders of this worker that belong to no attempt."""
        for runner in self.runners.values():
            with contextlib.suppress(CannotStart):
                for gone in runner.cleanup(self._machine.attempts):
                    self._say(f"removed leftovers of {gone}")
        self._secret_files.keep_only(self._spool.entries)
        folders = {self._spool.folder(name) for name in self._spool.entries}
        for folder in self._spool.folders.root.iterdir():
            if folder not in folders and not self._settings.keep_failed:
                self._performer.remove(folder)

    def discard_all(self) -> None:
        """Remove all running programs, in reverse order, because their attempts now belong to another session."""
        for execution in reversed(
            self.read_state(lambda machine, executions: [executions[name] for name in machine.attempts])
        ):
            with contextlib.suppress(CannotStart):
                execution.runner.discard(execution.id)

    def retry_cleanup(self) -> None:
        self._performer.retry_cleanup()

    # Internals

    def _is_wanted(self, name: str) -> bool:
        """Whether an attempt must still be prepared, because it was not ended meanwhile."""
        with self._lock:
            attempt = self._machine.attempts.get(name)
            return attempt is not None and isinstance(attempt.stage, Waiting | Preparing)

    def _carry_out(self, instructions: list[steps.Instruction]) -> None:
        """Carry out instructions in order. The performer gets the instructions about programs and folders."""
        todo, results = [], []
        for each in instructions:
            execution = self._executions[each.name]
            match each:
                case steps.Send():
                    results.append(each.name)
                case steps.Say():
                    self._say(each.text)
                case steps.CloseGate():
                    self.set_gate("runner", f"{execution.runner.name} does not work: {each.error}")
                case steps.Forget():
                    self._spool.settle({each.name: ResultAnswer.STALE})
                case _:
                    todo.append((each, execution))
                    if isinstance(each, steps.Discard) and each.folder:
                        del self._executions[each.name]
        if results:
            self._on_results(results)
        if todo:
            self._performer.perform(todo)
        if any(isinstance(do, steps.Collect) and not execution.collects_inline for do, execution in todo):
            self.request_work()  # results that are collected inline are sent now, and carry the next claim
