"""The heart of the worker: takes attempts, starts them when their turn has come, and turns their ends into results.

It has no thread of its own. Every method may be called from any thread, does what is to be done now, and returns; slow
work goes through `run_slow`, which is a pool in the daemon and a plain call in a test. Time, disk, runners and the
coordinator come from outside, so the same object runs in a simulation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from deborgen_shared.messages import Assignment, Result
from deborgen_shared.transport import Refused, Unreachable
from deborgen_worker import workspace
from deborgen_worker.attempt import Attempt, Ending, Stage, result_of
from deborgen_worker.cache import BlobCache
from deborgen_worker.capacity import Amount, Ledger
from deborgen_worker.crash import point
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.policy import Gate
from deborgen_worker.runners.protocol import CannotStart, Exit, Runner, RunnerDown
from deborgen_worker.settings import Settings
from deborgen_worker.spool import Spool

#: How long an attempt that was claimed ahead may wait for its turn before it is given back.
AHEAD_WAIT_SECONDS = 5.0
#: Of those that wait for their turn, so many are looked at: a small one may pass a large one, within reason.
LOOK_AT = 8
#: After KILL, how long the runner may take to tell of the end before the attempt is ended without it.
AFTER_KILL_SECONDS = 30.0
#: How long the files of a job are asked for when the coordinator cannot be reached.
FETCH_SECONDS = 600.0


class Agent:
    """All attempts of this worker, and what they may use."""

    def __init__(
        self,
        settings: Settings,
        spool: Spool,
        cache: BlobCache,
        offered: Amount,
        *,
        clock: Callable[[], float],
        say: Callable[[str], None],
        run_slow: Callable[[Callable[[], None]], None],
        gpus: Iterable[str] = (),
    ) -> None:
        self.settings, self.spool, self.cache, self.clock, self.say = settings, spool, cache, clock, say
        self.run_slow = run_slow
        self.runners: dict[str, Runner] = {}
        self.ledger = Ledger(offered, settings.slots)
        self.gate = Gate()
        self.attempts: dict[str, Attempt] = {}
        self.lock = threading.RLock()
        self._gpus = set(gpus)
        self._turn: deque[str] = deque()
        #: Called when something changed that others wait for: room for a claim, a result to send.
        self.on_room: Callable[[], None] = lambda: None
        self.on_result: Callable[[str], None] = lambda _attempt: None

    # Taking

    def build(self, assignment: Assignment) -> Attempt:
        """The attempt as this worker will run it. Raises `CannotStart` if it cannot."""
        spec = workspace.spec_of(assignment)
        runner = self.runners.get(spec.runner)
        if runner is None:
            raise CannotStart(f"this worker has no runner for it ({spec.runner})")
        if spec.network == "internet" and self.settings.network != "internet":
            raise CannotStart("the owner of this worker gives jobs no network")
        folder = self.spool.folder(assignment.attempt)
        launch = workspace.launch_of(assignment, spec, folder, pids=self.settings.pids, tmp_size=self.settings.tmp_size)
        need = spec.resources
        amount = Amount(need.cpus, need.memory, need.gpus, need.disk)
        return Attempt(assignment, spec, launch, runner, amount, self.settings.log_cap)

    def accept(self, assignments: Iterable[Assignment], ahead: bool = False) -> list[str]:
        """Take attempts that are in the spool. They wait to be confirmed; those that cannot run here end at once."""
        taken = []
        for assignment in assignments:
            with self.lock:
                if assignment.attempt in self.attempts:
                    continue
            try:
                attempt = self.build(assignment)
            except CannotStart as error:
                self._refuse(assignment, str(error))
                continue
            with self.lock:
                attempt.ahead, attempt.waiting_since = ahead, self.clock()
                self.attempts[attempt.id] = attempt
                self.ledger.wait(attempt.id, attempt.amount)
            taken.append(attempt.id)
        return taken

    def _refuse(self, assignment: Assignment, reason: str) -> None:
        result = Result(attempt=assignment.attempt, outcome="error", reason=reason)
        self.spool.ended(assignment.attempt, result)
        self.on_result(assignment.attempt)

    def told(self, answers: dict[str, str]) -> None:
        """What the coordinator says to each attempt: go on, cancel, or stop because it is somebody else's now."""
        for name, word in answers.items():
            with self.lock:
                attempt = self.attempts.get(name)
                if attempt is None or attempt.stage is Stage.ENDED:
                    continue
                if word == "continue":
                    if attempt.stage is Stage.ASSIGNED:
                        attempt.stage = Stage.CONFIRMED
                        self._turn.append(name)
                    continue
            if word == "cancel":
                self.end(name, Ending.CANCEL, "canceled")
            elif word == "stop":
                self.say(f"{name} is no longer ours: it is stopped")
                self.end(name, Ending.STALE, "")
        point("after-confirmed")
        self.start_ready()

    # Starting

    def start_ready(self) -> None:
        """Start every confirmed attempt whose turn has come and for which there is room."""
        while True:
            with self.lock:
                attempt = self._next()
                if attempt is None:
                    return
            if attempt.light:
                self._start(attempt)
            else:
                self.run_slow(lambda attempt=attempt: self._start(attempt))  # type: ignore[misc]

    def _next(self) -> Attempt | None:
        for name in list(islice(self._turn, LOOK_AT)):
            attempt = self.attempts.get(name)
            if attempt is None or attempt.stage is not Stage.CONFIRMED:
                self._turn.remove(name)
                continue
            if not self.ledger.start(name, self.clock()):
                self._prepare_ahead(attempt)
                continue
            self._turn.remove(name)
            attempt.stage = Stage.PREPARING
            attempt.gpus = tuple(sorted(self._gpus)[: attempt.spec.resources.gpus])
            self._gpus -= set(attempt.gpus)
            return attempt
        return None

    def _prepare_ahead(self, attempt: Attempt) -> None:
        """Do the slow part of a start while another job still has the slot."""
        if attempt.light or attempt.preparing or attempt.spec.resources.gpus or not attempt.ahead:
            return
        attempt.preparing = True

        def prepare() -> None:
            with contextlib.suppress(CannotStart, OSError, Unreachable, Refused), attempt.log_lock:
                if attempt.stage is Stage.CONFIRMED:
                    workspace.make(attempt.launch, attempt.assignment, attempt.spec, self.cache, self.spool.folders)
                    attempt.runner.prepare(attempt.launch)
                    attempt.prepared = True

        self.run_slow(prepare)

    def _start(self, attempt: Attempt) -> None:
        try:
            with attempt.log_lock:  # a preparation ahead may still be under way
                if not attempt.prepared:
                    self._make(attempt)
                if attempt.gpus:
                    attempt.launch = dataclasses.replace(attempt.launch, gpus=attempt.gpus)
            attempt.started = self.clock()
            self.spool.started(attempt.id, attempt.runner.name, attempt.started)
            with self.lock:
                if attempt.ending is not None:
                    return self._over(attempt, Exit(error="ended before it was started"))
                attempt.stage = Stage.RUNNING
            attempt.runner.start(attempt.launch)
            point("after-started")
        except RunnerDown as error:
            self._runner_down(attempt, error)
        except (CannotStart, OSError, SpoolFullError, Refused, Unreachable) as error:
            self._over(attempt, Exit(error=str(error) or type(error).__name__))
        return None

    def _make(self, attempt: Attempt) -> None:
        """Lay out the workspace; while the coordinator cannot be reached for its files, wait and ask again."""
        end = self.clock() + FETCH_SECONDS
        pause = threading.Event()
        while True:
            try:
                return workspace.make(attempt.launch, attempt.assignment, attempt.spec, self.cache, self.spool.folders)
            except Unreachable as error:
                if self.clock() > end or attempt.ending is not None:
                    raise CannotStart(f"the files of the job cannot be fetched: {error}") from None
                pause.wait(2.0)
            except Refused as error:
                raise CannotStart(f"the files of the job cannot be fetched: {error}") from None

    def _runner_down(self, attempt: Attempt, error: Exception) -> None:
        """Nothing was started, and nothing can be: the attempt is given back, and no new work is taken."""
        if self.gate.close("runner", f"{attempt.runner.name} does not work: {error}"):
            self.say(f"{attempt.runner.name} does not work: {error}; no new work is taken until it does")
        with self.lock:
            attempt.ending, attempt.ending_reason = Ending.RELEASE, f"the runner of the worker is down: {error}"
        self._over(attempt, Exit(error=str(error)))

    # Ending

    def exited(self, name: str, exit_: Exit) -> None:
        """The program ended. Called by runners."""
        with self.lock:
            attempt = self.attempts.get(name)
            if attempt is None or attempt.stage not in {Stage.PREPARING, Stage.RUNNING}:
                return
        point("after-exited")
        if attempt.light and not attempt.spec.artifacts:
            self._over(attempt, exit_)
        else:
            self.run_slow(lambda: self._over(attempt, exit_))

    def end(self, name: str, ending: Ending, reason: str) -> None:
        """End an attempt from this side: at once if nothing runs, else by TERM, and KILL after the grace period."""
        with self.lock:
            attempt = self.attempts.get(name)
            if attempt is None or attempt.stage in {Stage.COLLECTING, Stage.ENDED}:
                if attempt is not None and ending is Ending.STALE:
                    attempt.ending = ending
                return
            if attempt.ending is not None and ending is not Ending.STALE:
                return
            first = attempt.ending is None
            attempt.ending, attempt.ending_reason = ending, reason
            waiting = attempt.stage in {Stage.ASSIGNED, Stage.CONFIRMED}
            running = attempt.stage is Stage.RUNNING
            if running and first:
                attempt.term_at = self.clock()
        if waiting:
            self._over(attempt, Exit(error=reason))
        elif running:
            with contextlib.suppress(SpoolFullError):  # only a crash before the program's end would miss it
                self.spool.stopped(name, ending.value, reason)
            self._signal(attempt, "KILL" if ending is Ending.STALE else "TERM")

    def end_again(self, attempt: Attempt) -> None:
        """An earlier session was ending it, and died before it was over: go on with that."""
        attempt.term_at = self.clock()
        self._signal(attempt, "KILL" if attempt.ending is Ending.STALE else "TERM")

    def _signal(self, attempt: Attempt, word: str) -> None:
        try:
            if attempt.frozen_at is not None:
                attempt.runner.thaw(attempt.id)
            attempt.runner.signal(attempt.id, word)
        except CannotStart as error:
            self.say(f"{attempt.id} could not be sent {word}: {error}")

    def _over(self, attempt: Attempt, exit_: Exit) -> None:
        """Write down how it ended, and let the next one start meanwhile."""
        with self.lock:
            if attempt.stage in {Stage.COLLECTING, Stage.ENDED}:
                return
            attempt.stage = Stage.COLLECTING
            attempt.ended = self.clock()
            self._gpus |= set(attempt.gpus)
            self.ledger.end(attempt.id, attempt.ended)
        if attempt.ending is Ending.STALE:
            self.forget(attempt.id, "stale")
        else:
            self._write_result(attempt, exit_)
        self.start_ready()
        with self.lock:
            wanting = self.ledger.wanting(self.clock())
        if wanting:
            self.on_room()

    def _write_result(self, attempt: Attempt, exit_: Exit) -> None:
        try:
            result, notes = result_of(attempt, exit_, attempt.ended)
        except OSError as error:
            result = Result(attempt=attempt.id, outcome="error", reason=f"the output could not be collected: {error}")
            notes = ""
        point("after-collected")
        try:
            self.spool.ended(attempt.id, result, notes)
        except SpoolFullError:
            # Not even the reserve is left: the result is told without being written down, which is the best there is.
            self.spool.entries[attempt.id].result = result
        with self.lock:
            attempt.stage = Stage.ENDED
        self.on_result(attempt.id)

    def forget(self, name: str, how: str) -> None:
        """The coordinator has had the last word: nothing of the attempt stays here, unless its owner wants to look."""
        entry = self.spool.entries.get(name)
        result = entry.result if entry is not None else None
        with self.lock:
            attempt = self.attempts.pop(name, None)
            self.ledger.end(name, self.clock())
        self.spool.settle(name, how)
        keep = self.settings.keep_failed and result is not None and result.outcome not in {"succeeded", "released"}

        def clean() -> None:
            if attempt is not None and (attempt.started or attempt.preparing):
                with contextlib.suppress(CannotStart):
                    attempt.runner.discard(name)
            if not keep:
                self.remove(self.spool.folder(name))

        if attempt is None or attempt.light:
            clean()
        else:
            self.run_slow(clean)

    def remove(self, folder: Path) -> None:
        if folder.exists() and not self.spool.folders.give_back(folder):
            self.say(f"{folder} could not be removed")

    # Time

    def tick(self) -> None:
        """What time brings: timeouts, KILL after TERM, turns that never came."""
        now = self.clock()
        with self.lock:
            attempts = list(self.attempts.values())
        for attempt in attempts:
            if attempt.stage is Stage.RUNNING:
                self._tick_running(attempt, now)
            elif attempt.stage in {Stage.ASSIGNED, Stage.CONFIRMED}:
                if self.gate.closed:
                    self.end(attempt.id, Ending.RELEASE, self.gate.reason)
                elif attempt.ahead and now - attempt.waiting_since > AHEAD_WAIT_SECONDS:
                    self.end(attempt.id, Ending.RELEASE, "the worker had no room for it after all")

    def _tick_running(self, attempt: Attempt, now: float) -> None:
        limit = attempt.assignment.timeout_seconds
        if attempt.ending is None and attempt.frozen_at is None and attempt.used_seconds(now) > limit:
            self.end(attempt.id, Ending.TIMEOUT, f"ran longer than its timeout of {limit:g} s")
        if attempt.killed_at is not None:
            if now - attempt.killed_at > AFTER_KILL_SECONDS:
                self.exited(attempt.id, Exit(error="it did not end, even after KILL"))
        elif attempt.term_at is not None and now - attempt.term_at > self.settings.kill_grace:
            attempt.killed_at = now
            self._signal(attempt, "KILL")
