"""The heart of the worker: takes attempts, starts them when their turn has come, and turns their ends into results.

It has no thread of its own. Every method may be called from any thread, does what is to be done now, and returns; slow
work goes through `run_slow`, which is a pool in the daemon and a plain call in a test. Time, disk, runners and the
coordinator come from outside, so the same object runs in a simulation.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from deborgen_shared.messages import Assignment, Result
from deborgen_shared.states import Outcome
from deborgen_worker import leases, workspace
from deborgen_worker.attempt import Attempt, Ending, Stage, result_of
from deborgen_worker.cache import BlobCache
from deborgen_worker.capacity import Amount, Ledger
from deborgen_worker.crash import point
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.policy import Gate
from deborgen_worker.runners.protocol import CannotStart, Exit, Runner
from deborgen_worker.settings import Settings
from deborgen_worker.spool import Ended, Spool
from deborgen_worker.starting import LANE_WAIT_SECONDS, Starter

#: How long an attempt may wait for room before it is given back: it was claimed ahead, or two claims brought too much.
AHEAD_WAIT_SECONDS = 5.0
#: How long the removal of what is delivered waits for its turn.
HANDS_SECONDS = 0.05
#: After KILL, how long the runner may take to tell of the end before the attempt is ended without it.
AFTER_KILL_SECONDS = 30.0


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
        lease_clock: Callable[[], float],
        say: Callable[[str], None],
        run_slow: Callable[[Callable[[], None]], None],
        gpus: Iterable[str] = (),
    ) -> None:
        self.settings, self.spool, self.cache, self.clock, self.say = settings, spool, cache, clock, say
        self.run_slow, self.lease_clock = run_slow, lease_clock
        self.runners: dict[str, Runner] = {}
        self.ledger = Ledger(offered, settings.slots)
        self.gate = Gate()
        self.attempts: dict[str, Attempt] = {}
        self.lock = threading.RLock()
        #: Held for work of many small steps, which one thread does at a time: two that take turns at every system call
        #: cost more than the work. Whoever holds `lock` must not ask for it.
        self.hands = threading.RLock()
        self.starter = Starter(self, gpus)
        #: What a runner could not remove, by attempt: it is tried again once the runner is well.
        self.leftovers: dict[str, Runner] = {}
        #: Called when something changed that others wait for: room for a claim, a result to send.
        self.on_room: Callable[[], None] = lambda: None
        self.on_result: Callable[[list[str]], None] = lambda _attempts: None

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

    def accept(
        self, assignments: Iterable[Assignment], sent: float, waited_seconds: float, ahead: bool = False
    ) -> None:
        """Take attempts that are in the spool, and start those whose turn it is. Those that cannot run here end now.

        `sent` is when the request that brought them was sent, `waited_seconds` how long it waited at the coordinator.
        """
        for assignment in assignments:
            if assignment.attempt in self.attempts:
                continue
            try:
                attempt = self.build(assignment)
            except CannotStart as error:
                self._refuse(assignment, str(error))
                continue
            with self.lock:
                attempt.ahead, attempt.waiting_since = ahead, self.clock()
                attempt.start_by = leases.start_by(sent, assignment.lease_seconds, waited_seconds)
                self.wait(attempt)
        point("after-accepted")
        self.starter.start_ready()

    def wait(self, attempt: Attempt) -> None:
        """Let an attempt wait for its turn."""
        self.attempts[attempt.id] = attempt
        self.ledger.wait(attempt.id, attempt.amount)
        self.starter.turn.append(attempt.id)

    def _refuse(self, assignment: Assignment, reason: str) -> None:
        result = Result(attempt=assignment.attempt, outcome=Outcome.ERROR.value, reason=reason)
        self.spool.ended(Ended(assignment.attempt, result))
        self.on_result([assignment.attempt])

    def told(self, answers: dict[str, str], sent: float) -> None:
        """What the coordinator says to each attempt: go on, cancel, or stop because it is somebody else's now.

        `sent` is when the heartbeat was sent that it answers.
        """
        for name, word in answers.items():
            with self.lock:
                attempt = self.attempts.get(name)
                if attempt is None or attempt.stage is Stage.ENDED:
                    continue
                attempt.named |= 0 < attempt.began <= sent
                if word == "continue":
                    attempt.start_by = leases.start_by(sent, attempt.assignment.lease_seconds)
                    continue
            if word == "cancel":
                self.end(name, Ending.CANCEL, Outcome.CANCELED)
            elif word == "stop":
                self.say(f"{name} is no longer ours: it is stopped")
                self.end(name, Ending.STALE, "")
        self.starter.start_ready()

    def unnamed(self, seconds: float) -> bool:
        """Whether a program began this long ago and no heartbeat has named its attempt since."""
        before = self.lease_clock() - seconds
        with self.lock:
            return any(
                each.stage is Stage.RUNNING
                and not each.named
                and 0 < each.began <= before
                and each.ending is not Ending.STALE
                for each in self.attempts.values()
            )

    # Ending

    def exited(self, ends: list[tuple[str, Exit]]) -> None:
        """Programs ended. Called by runners."""
        over: list[tuple[Attempt, Exit]] = []
        with self.lock:
            for name, exit_ in ends:
                attempt = self.attempts.get(name)
                if attempt is None or not attempt.on_machine:
                    continue
                if exit_.recalled and attempt.ending is None:
                    self.starter.called_back(attempt)
                else:
                    over.append((attempt, exit_))
        point("after-exited")
        self.over(over)

    def end(self, name: str, ending: Ending, reason: str) -> None:
        """End an attempt from this side: at once if nothing runs, else by TERM, and KILL after the grace period."""
        with self.lock:
            attempt = self.attempts.get(name)
            if attempt is None or attempt.stage in {Stage.COLLECTING, Stage.ENDED}:
                if attempt is not None and ending is Ending.STALE:
                    attempt.ending = ending
                return
            # What waits for its turn, its files or its image has nothing to be signalled: it is over at once.
            waiting = attempt.stage is Stage.WAITING
            waiting = waiting or (attempt.stage is Stage.PREPARING and not attempt.light)
            if attempt.ending is not None and ending is not Ending.STALE and not waiting:
                return
            first = attempt.ending is None
            attempt.ending, attempt.ending_reason = ending, reason
            running = attempt.stage in {Stage.NEXT, Stage.RUNNING}
            if running and first:
                attempt.term_at = self.clock()
        if waiting:
            self.over([(attempt, Exit(error=reason))])
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

    def over(self, ends: list[tuple[Attempt, Exit]]) -> None:
        """Let the next ones start, and write down how these ended."""
        with self.lock:
            ends = [(attempt, exit_) for attempt, exit_ in ends if self._free(attempt, exit_)]
        quick: list[tuple[Attempt, Exit]] = []
        with self.hands:
            self.starter.start_ready()
            for attempt, exit_ in ends:
                if attempt.ending is Ending.STALE:
                    self.forget({attempt.id: "stale"})
                elif attempt.quick and not attempt.log_lock.locked():  # else its log is just on the wire
                    quick.append((attempt, exit_))
                else:
                    self.run_slow(lambda end=(attempt, exit_): self._write_results([end]))  # type: ignore[misc]
            if quick:
                self._write_results(quick)
        if not quick:  # else their results are sent now, and carry the next claim
            self.refill()

    def wanting(self) -> bool:
        """Whether more work would be asked for now."""
        with self.lock:
            return self.ledger.wanting(self.clock())

    def busy_with_short_jobs(self) -> bool:
        """Whether jobs have just ended one soon after the other: then many of them share a request."""
        with self.lock:
            return self.ledger.ahead(self.clock()) > 0

    def refill(self) -> None:
        """Have more work asked for, if there is room for it."""
        if self.wanting():
            self.on_room()

    def _free(self, attempt: Attempt, exit_: Exit) -> bool:
        """Take back what the attempt had. False if that was done before."""
        if attempt.stage in {Stage.COLLECTING, Stage.ENDED}:
            return False
        attempt.stage = Stage.COLLECTING
        attempt.ended = self.clock()
        # In a lane its own time is what counts; a container keeps its room for longer than its program runs.
        self.ledger.end(attempt.id, attempt.ended, exit_.seconds if attempt.lanes is not None else None)
        self.starter.left(attempt)
        return True

    def _write_results(self, ends: list[tuple[Attempt, Exit]]) -> None:
        results = []
        for attempt, exit_ in ends:
            try:
                results.append(result_of(attempt, exit_, attempt.ended))
            except Exception as error:
                reason = f"the output could not be collected: {error}"
                plain = Result(attempt=attempt.id, outcome=Outcome.ERROR.value, reason=reason)
                results.append(Ended(attempt.id, plain, began=attempt.began))
        point("after-collected")
        self._write_down(results)
        with self.lock:
            for attempt, _ in ends:
                attempt.stage = Stage.ENDED
        self.on_result([attempt.id for attempt, _ in ends])

    def _write_down(self, results: list[Ended]) -> None:
        try:
            self.spool.ended(*results)
        except (SpoolFullError, OSError):
            # Not even the reserve is left: they are told without being written down, which is the best there is.
            for each in results:
                self.spool.entries[each.attempt].result = each.result
        except Exception as error:
            # One that cannot be written must not keep the others from it, nor end the thread that brought them.
            if len(results) > 1:
                for each in results:
                    self._write_down([each])
                return
            name = results[0].attempt
            self.say(f"the result of {name} cannot be written down: {error!r}")
            plain = Result(
                attempt=name, outcome=Outcome.ERROR.value, reason=f"its result cannot be written down: {error!r}"[:2000]
            )
            self._write_down([Ended(name, plain)])

    def forget(self, answers: dict[str, str]) -> None:
        """The coordinator has had the last word: nothing of them stays here, unless their owner wants to look."""
        gone: list[tuple[str, Attempt | None, bool]] = []
        with self.lock:
            now = self.clock()
            for name in answers:
                entry = self.spool.entries.get(name)
                result = entry.result if entry is not None else None
                failed = result is not None and result.outcome not in {Outcome.SUCCEEDED, Outcome.RELEASED}
                gone.append((name, self.attempts.pop(name, None), self.settings.keep_failed and failed))
                self.ledger.end(name, now)
        self.spool.settle(answers)
        light = [each for each in gone if each[1] is None or each[1].light]
        # Better with both hands, but without waiting long for them: a lock of Python's knows no queue, and whoever
        # handles the ends of short jobs may take it again and again.
        alone = self.hands.acquire(timeout=HANDS_SECONDS)
        try:
            for name, attempt, keep in light:
                self._clean(name, attempt, keep)
        finally:
            if alone:
                self.hands.release()
        for name, attempt, keep in gone:
            if attempt is not None and not attempt.light:
                self.run_slow(lambda each=(name, attempt, keep): self._clean(*each))  # type: ignore[misc]

    def let_go(self, attempt: Attempt) -> None:
        """A thread that prepared or started it is done: if it was forgotten meanwhile, it is removed now."""
        with self.lock:
            attempt.threads -= 1
        if attempt.keep is not None:
            self._clean(attempt.id, attempt, attempt.keep)

    def _clean(self, name: str, attempt: Attempt | None, keep: bool) -> None:
        if attempt is not None:
            with self.lock:
                if attempt.threads:
                    attempt.keep = keep
                    return
        if attempt is not None and (attempt.started or attempt.preparing):
            try:
                attempt.runner.discard(name)
            except CannotStart:
                self.leftovers[name] = attempt.runner
        if not keep:
            self.remove(self.spool.folder(name))

    def clean_again(self) -> None:
        """Remove what could not be removed before, and nothing else: another pool's worker may have our name."""
        for name, runner in list(self.leftovers.items()):
            with contextlib.suppress(CannotStart):
                runner.discard(name)
                del self.leftovers[name]

    def remove(self, folder: Path) -> None:
        if not self.spool.folders.give_back(folder):
            self.say(f"{folder} could not be removed")

    # Time

    def tick(self) -> None:
        """What time brings: timeouts, KILL after TERM, turns that never came."""
        now = self.clock()
        self.starter.call_back(0.0 if self.gate.closed else LANE_WAIT_SECONDS)
        with self.lock:
            attempts = list(self.attempts.values())
        for attempt in attempts:
            if attempt.stage is Stage.RUNNING:
                self._tick_running(attempt, now)
            elif attempt.stage is Stage.WAITING:
                if self.gate.closed:
                    self.end(attempt.id, Ending.RELEASE, self.gate.reason)
                elif now - attempt.waiting_since > AHEAD_WAIT_SECONDS and self.starter.fresh(attempt):
                    self.end(attempt.id, Ending.RELEASE, "the worker had no room for it after all")

    def _tick_running(self, attempt: Attempt, now: float) -> None:
        limit = attempt.assignment.timeout_seconds
        if attempt.ending is None and attempt.frozen_at is None and attempt.used_seconds(now) > limit:
            self.end(attempt.id, Ending.TIMEOUT, f"ran longer than its timeout of {limit:g} s")
        if attempt.killed_at is not None:
            if now - attempt.killed_at > AFTER_KILL_SECONDS:
                self.exited([(attempt.id, Exit(error="it did not end, even after KILL"))])
        elif attempt.term_at is not None and now - attempt.term_at > self.settings.kill_grace:
            attempt.killed_at = now
            self._signal(attempt, "KILL")
