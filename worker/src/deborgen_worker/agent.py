"""The one entry point to the state of the worker: takes events, asks `lifecycle` what to do, and carries that out.

It has no thread of its own. Every method may be called from any thread. Quick instructions are carried out at once, in
the order in which they were decided; slow ones (files, images, containers, artifacts) go to `Strands`. Time, disk,
runners and the coordinator come from outside, so the same object runs in a simulation.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from deborgen_shared.messages import Assignment, Result
from deborgen_shared.states import Outcome
from deborgen_worker import leases, lifecycle, steps, workspace
from deborgen_worker.attempts import Attempt, Done, Ending, Preparing, Running, Waiting
from deborgen_worker.cache import BlobCache
from deborgen_worker.capacity import Amount, Asked, Ledger
from deborgen_worker.crash import point
from deborgen_worker.execution import Execution
from deborgen_worker.lifecycle import Machine, Moment
from deborgen_worker.performer import Performer
from deborgen_worker.runners.protocol import CannotStart, Runner, Tell
from deborgen_worker.settings import Settings
from deborgen_worker.spool import Ended, Spool
from deborgen_worker.steps import Event
from deborgen_worker.strands import Work

T = TypeVar("T")


class Agent:
    """All attempts of this worker, and what they may use.

    `on_room` is called when more work could be asked for, `on_results` with the names of attempts whose results are in
    the spool, `on_gate` when the gate was closed or opened.
    """

    def __init__(
        self,
        settings: Settings,
        spool: Spool,
        cache: BlobCache,
        offered: Amount,
        make_runners: Callable[[Tell], dict[str, Runner]],
        *,
        clock: Callable[[], float],
        lease_clock: Callable[[], float],
        say: Callable[[str], None],
        run_slow: Callable[[Work], object],
        on_room: Callable[[], None],
        on_results: Callable[[list[str]], None],
        on_gate: Callable[[], None] = lambda: None,
        gpus: Iterable[str] = (),
    ) -> None:
        self._settings, self._spool, self._cache, self._say = settings, spool, cache, say
        self.clock, self.lease_clock = clock, lease_clock
        self._on_room, self._on_results, self._on_gate = on_room, on_results, on_gate
        self._lock = threading.RLock()
        self._machine = Machine(Ledger(offered, settings.slots), settings.kill_grace, set(gpus))
        self._machine.freeze_limit = settings.freeze_limit or self._machine.freeze_limit
        self._executions: dict[str, Execution] = {}
        self._events: list[Event] = []
        self._working = False
        self._performer = Performer(
            spool, cache, clock=clock, lease_clock=lease_clock, say=say, run_slow=run_slow, handle=self.handle,
            is_wanted=self._is_wanted,
        )  # fmt: skip
        self.runners = make_runners(self.told)

    # The entry point

    def handle(self, events: Iterable[Event]) -> None:
        """Decide what these events mean, and do it. Events that come of that are handled before this returns."""
        with self._lock:
            self._events += events
            if self._working:  # by this very thread, further up
                return
            self._working = True
            try:
                more = True
                while more:
                    batch, self._events = self._events, []
                    self._carry_out(lifecycle.handle(self._machine, batch, self._now()))
                    more = bool(self._events)
            finally:
                self._working = False

    def told(self, events: list[Event]) -> None:
        """Programs ended, began, or were given back: by their runners."""
        point("after-exited")
        self.handle(events)

    def tick(self) -> None:
        """What time brings: timeouts, KILL after TERM, turns that never came, freezes that the owner wants."""
        with self._lock:
            self.handle([steps.Ticked(name) for name in self._machine.attempts])

    def look(self, view: Callable[[Machine, Mapping[str, Execution]], T]) -> T:
        """Read the state. What the view returns must not be a part of it."""
        with self._lock:
            return view(self._machine, self._executions)

    @property
    def is_closed(self) -> bool:
        """Whether no new work may be taken."""
        return self._machine.gate.closed

    def is_running(self, name: str) -> bool:
        """Whether its program runs. It does not wait for the lock: a thread that holds the lock of a log may ask."""
        attempt = self._machine.attempts.get(name)
        return attempt is not None and isinstance(attempt.stage, Running)

    def execution(self, name: str) -> Execution | None:
        return self._executions.get(name)

    def _now(self) -> Moment:
        return Moment(self.clock(), self.lease_clock())

    # What others want

    def question(self) -> Asked | None:
        """What a claim would ask for now; None if nothing may be asked for."""
        with self._lock:
            return None if self._machine.gate.closed else self._machine.ledger.question(self.clock())

    def ask_ahead_after(self, moment: float) -> None:
        """No sooner may more be asked for than there is room for."""
        with self._lock:
            self._machine.ledger.ahead_after = moment

    def accept(self, assignments: Iterable[Assignment], sent: float, waited_seconds: float) -> None:
        """Take attempts that are in the spool, and start those whose turn it is. Those that cannot run here end now.

        `sent` is when the request that brought them was sent, `waited_seconds` how long it waited at the coordinator.
        """
        with self._lock:
            for assignment in assignments:
                start_by = leases.start_by(sent, assignment.lease_seconds, waited_seconds)
                try:
                    self.add(assignment, Waiting(self.clock(), start_by))
                except CannotStart as error:
                    result = Result(attempt=assignment.attempt, outcome=Outcome.ERROR.value, reason=str(error))
                    self._spool.ended(Ended(assignment.attempt, result))
                    self._on_results([assignment.attempt])
            point("after-accepted")
            self.handle([])

    def add(self, assignment: Assignment, stage: Waiting | Running | Done) -> Execution:
        """Take one attempt, without doing anything about it yet. Raises `CannotStart` if it cannot run here."""
        spec = workspace.spec_of(assignment)
        runner = self.runners.get(spec.runner)
        if runner is None:
            raise CannotStart(f"the job needs a {spec.runner}, and this worker runs none")
        if spec.network == "internet" and self._settings.network != "internet":
            raise CannotStart("the owner of this worker gives jobs no network")
        pids, tmp_size = self._settings.pids, self._settings.tmp_size
        launch = workspace.launch_of(
            assignment, spec, self._spool.folder(assignment.attempt), pids=pids, tmp_size=tmp_size
        )
        made = Execution(assignment, spec, launch, runner, self._settings.log_cap)
        need = spec.resources
        amount = Amount(need.cpus, need.memory, need.gpus, need.disk)
        follows = made.light and not need.gpus and hasattr(runner, "follow")
        with self._lock:
            if made.id not in self._machine.attempts:
                self._executions[made.id] = made
                attempt = Attempt(made.id, amount, assignment.timeout_seconds, stage, made.light, follows)
                self._machine.add(attempt)
        return made

    def apply_answers(self, answers: Mapping[str, str], sent: float) -> None:
        """What the coordinator says to each attempt: go on, cancel, or stop because it is somebody else's now.

        `sent` is when the heartbeat was sent that it answers.
        """
        events: list[Event] = []
        for name, word in answers.items():
            made = self._executions.get(name)
            if made is None or self._is_done(name):
                continue
            if word == "continue":
                events.append(steps.Renewed(name, leases.start_by(sent, made.assignment.lease_seconds), sent))
            elif word == "cancel":
                events.append(steps.StopAsked(name, Ending.CANCEL, Outcome.CANCELED))
            elif word == "stop":
                self._say(f"{name} is no longer ours: it is stopped")
                events.append(steps.StopAsked(name, Ending.STALE))
        self.handle(events)

    def _is_done(self, name: str) -> bool:
        attempt = self._machine.attempts.get(name)
        return attempt is None or isinstance(attempt.stage, Done)

    def stop_all(self, ending: Ending, reason: str) -> None:
        """End all that is not finished. The last ones first: none begins because one before it ended."""
        with self._lock:
            self.handle([steps.StopAsked(name, ending, reason) for name in reversed(self._machine.attempts)])

    def settle(self, answers: Mapping[str, str]) -> None:
        """The coordinator has had the last word: nothing of them stays here, unless their owner wants to look."""
        with self._lock:
            for name in answers:
                entry, made = self._spool.entries.get(name), self._executions.get(name)
                if self._settings.keep_failed and made is not None and entry is not None and entry.result is not None:
                    made.keep = entry.result.outcome not in {Outcome.SUCCEEDED, Outcome.RELEASED}
            unknown = [name for name in answers if name not in self._executions]
            self._spool.settle(answers)
            self.handle([steps.Settled(name) for name in answers])
            for name in unknown if not self._settings.keep_failed else ():
                self._performer.remove(self._spool.folder(name))

    def keep(self, keeper: str, reason: str, until: float | None = None) -> None:
        """Close the gate for a reason, or open it if there is none; the owner is told when that is news."""
        gate = self._machine.gate
        with self._lock:
            before, known = gate.closed, keeper in gate.reasons
            news = gate.close(keeper, reason, until) if reason else gate.open(keeper)
        if not news:
            return
        if reason and not known:
            self._say(f"no new work is taken: {reason}")
        elif not reason:
            self._say("work is taken again" if not gate.closed else f"still no new work: {gate.reason}")
        if before != gate.closed:
            self.tick()
        self._on_gate()
        self.refill()

    def freeze(self, frozen: bool) -> None:
        """Have all programs frozen, or let them go on: now, and those that start later."""
        with self._lock:
            changed, self._machine.frozen = self._machine.frozen != frozen, frozen
            if changed:
                self.tick()

    def set_lease(self, seconds: float) -> None:
        """A frozen program is given back after this time, unless the owner has said another."""
        with self._lock:
            self._machine.freeze_limit = self._settings.freeze_limit or seconds

    def busy_with_short_jobs(self) -> bool:
        """Whether jobs have just ended one soon after the other: then many of them share a request."""
        with self._lock:
            return self._machine.ledger.ahead(self.clock()) > 0

    def refill(self) -> None:
        """Have more work asked for, if there is room for it."""
        if self.question() is not None:
            self._on_room()

    def unnamed(self, seconds: float) -> bool:
        """Whether a program began this long ago and no heartbeat has named its attempt since."""
        before = self.lease_clock() - seconds

        def is_unnamed(stage: Any) -> bool:
            stale = isinstance(stage, Running) and stage.stop is not None and stage.stop.ending is Ending.STALE
            return isinstance(stage, Running) and not stage.named and not stale and 0 < stage.began <= before

        return self.look(lambda machine, _: any(is_unnamed(each.stage) for each in machine.attempts.values()))

    def deliver(self, name: str) -> None:
        """Have a result told that an earlier session left in the spool."""
        self._on_results([name])

    def sweep(self) -> None:
        """Remove what carries our mark and belongs to nothing that we hold, and the folders of settled attempts."""
        for runner in self.runners.values():
            with contextlib.suppress(CannotStart):
                for gone in runner.sweep(self._machine.attempts):
                    self._say(f"removed what was left of {gone}")
        folders = {self._spool.folder(name) for name in self._spool.entries}
        for folder in self._spool.folders.root.iterdir():
            if folder not in folders and not self._settings.keep_failed:
                self._performer.remove(folder)

    def discard_all(self) -> None:
        """Remove all that may run, the last first: it is somebody else's now."""
        for made in reversed(self.look(lambda machine, executions: [executions[name] for name in machine.attempts])):
            with contextlib.suppress(CannotStart):
                made.runner.discard(made.id)

    def clean_again(self) -> None:
        self._performer.clean_again()

    # Inside

    def _is_wanted(self, name: str) -> bool:
        """Whether an attempt was not ended before its preparation."""
        with self._lock:
            attempt = self._machine.attempts.get(name)
            return attempt is not None and isinstance(attempt.stage, Waiting | Preparing)

    def _carry_out(self, instructions: list[steps.Instruction]) -> None:
        """Leave to the performer what is about a program or a folder; the rest is about others that wait for it."""
        todo, results = [], []
        for each in instructions:
            made = self._executions[each.name]
            match each:
                case steps.Send():
                    results.append(each.name)
                case steps.Say():
                    self._say(each.text)
                case steps.CloseGate():
                    self.keep("runner", f"{made.runner.name} does not work: {each.error}")
                case steps.Forget():
                    self._spool.settle({each.name: "stale"})
                case _:
                    todo.append((each, made))
                    if isinstance(each, steps.Discard) and each.folder:
                        del self._executions[each.name]
        if results:
            self._on_results(results)
        if todo:
            self._performer.perform(todo)
        if any(isinstance(do, steps.Collect) and not made.quick for do, made in todo):
            self.refill()  # the results of quick ones are sent now, and carry the next claim
