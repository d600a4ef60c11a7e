"""Starts attempts in their turn: where there is room, or in the lane of a program that is over soon."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import traceback
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_worker import workspace
from deborgen_worker.attempt import Attempt, Ending, Stage
from deborgen_worker.crash import point
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.lanes import Lanes
from deborgen_worker.runners.protocol import CannotStart, Exit, RunnerDown

if TYPE_CHECKING:
    from deborgen_worker.agent import Agent

#: Of those that wait for their turn, so many are looked at: a small one may pass a large one, within reason.
LOOK_AT = 8
#: Nothing is put behind a program that has run for so long; what waits behind one for longer is called back.
LANE_AHEAD_SECONDS = 0.2
LANE_WAIT_SECONDS = 0.5
#: How long the files of a job are asked for when the coordinator cannot be reached.
FETCH_SECONDS = 600.0
#: Why a start can fail; anything else is a fault of the worker.
FORESEEN = (CannotStart, OSError, SpoolFullError, Refused, Unreachable)


class Starter:
    """The part of the agent that starts. `turn` has the names of the waiting attempts, first come, first served."""

    def __init__(self, agent: Agent, gpus: Iterable[str]) -> None:
        self._agent = agent
        self._gpus = set(gpus)
        self.turn: deque[str] = deque()
        self.lanes = Lanes(int(agent.lease_clock() * 1000))
        self.lane_ahead = LANE_AHEAD_SECONDS

    def start_ready(self) -> None:
        """Start every waiting attempt whose turn has come and that has room, unless the gate is closed."""
        if self._agent.gate.closed:
            return
        with self._agent.hands:
            with self._agent.lock:
                ready = self._take_ready()
            if light := [each for each in ready if each.light]:
                self._start_light(light)
        for attempt in ready:
            if not attempt.light:
                self._agent.run_slow(lambda attempt=attempt: self._start(attempt))  # type: ignore[misc]

    def _take_ready(self) -> list[Attempt]:
        ready: list[Attempt] = []
        passed = 0
        for name in list(self.turn):
            attempt = self._agent.attempts.get(name)
            if attempt is None or attempt.stage is not Stage.WAITING:
                self.turn.remove(name)
            elif self.fresh(attempt) and self._place(attempt):
                self.turn.remove(name)
                attempt.stage = Stage.PREPARING
                attempt.threads += not attempt.light
                ready.append(attempt)
            else:
                self._prepare_ahead(attempt)
                passed += 1
                if passed == LOOK_AT:
                    break
        return ready

    def fresh(self, attempt: Attempt) -> bool:
        """Whether its lease is surely alive. If not, the next heartbeat will tell."""
        return self._agent.lease_clock() < attempt.start_by

    def _place(self, attempt: Attempt) -> bool:
        """Give it room of its own, or a place behind one that will be over soon."""
        now = self._agent.clock()
        if self._agent.ledger.start(attempt.id, now):
            self.give_gpus(attempt, sorted(self._gpus)[: attempt.spec.resources.gpus])
            if attempt.lanes is not None:
                self.lanes.open(attempt.id)
            return True
        behind = self._agent.ledger.behind()
        if not behind or attempt.lanes is None or attempt.amount.gpus:
            return False

        def fits(first: str, last: str) -> bool:
            ahead = self._agent.attempts[first]
            young = ahead.stage is Stage.PREPARING or now - ahead.started < self.lane_ahead
            soon = young and ahead.ending is None and ahead.frozen_at is None
            return soon and self._agent.attempts[last].amount.holds(attempt.amount)

        return self.lanes.join(attempt.id, behind, fits)

    def give_gpus(self, attempt: Attempt, names: Iterable[str]) -> None:
        """It has these and no others now."""
        self._gpus |= set(attempt.gpus)
        attempt.gpus = tuple(names)
        self._gpus -= set(attempt.gpus)

    def _prepare_ahead(self, attempt: Attempt) -> None:
        """Do the slow part of a start while another job still has the slot."""
        if attempt.light or attempt.preparing or attempt.spec.resources.gpus or not attempt.ahead:
            return
        attempt.preparing = True
        attempt.threads += 1

        def prepare() -> None:
            try:
                with contextlib.suppress(CannotStart, OSError, Unreachable, Refused), attempt.making:
                    if attempt.stage is Stage.WAITING:
                        self._lay_out(attempt)
                        attempt.runner.prepare(attempt.launch)
                        attempt.prepared = True
            finally:
                self._agent.let_go(attempt)

        self._agent.run_slow(prepare)

    def _start_light(self, attempts: list[Attempt]) -> None:
        """Start these in their lanes, with one message to their runner."""
        failed: list[tuple[Attempt, Exit]] = []
        for attempt in attempts:
            if attempt.lanes is None:
                self._start(attempt)
                continue
            try:
                if not attempt.prepared:
                    self._make(attempt)
            except Exception as error:
                failed.append((attempt, self._failure(error)))
        bad = {attempt.id for attempt, _ in failed}
        made = [each for each in attempts if each.lanes is not None and each.id not in bad]
        if made:
            failed += self._hand_over(made)
        if failed:
            self._agent.over(failed)

    def _hand_over(self, attempts: list[Attempt]) -> list[tuple[Attempt, Exit]]:
        """Give these to their runner; returns those that were not."""
        runner = attempts[0].lanes
        assert runner is not None
        failed: list[tuple[Attempt, Exit]] = []
        try:
            now = self._agent.clock()
            began = self._agent.lease_clock()
            plain = [each.id for each in attempts if not each.gpus]
            self._agent.spool.started(plain, runner.name, now, began)
            for each in attempts:
                if each.gpus:
                    self._agent.spool.started([each.id], runner.name, now, began, each.gpus)
            launches = []
            with self._agent.lock:
                for attempt in attempts:
                    if attempt.ending is not None:
                        failed.append((attempt, Exit(error="ended before it was started")))
                        continue
                    attempt.started = attempt.handed_at = now
                    attempt.stage = Stage.NEXT
                    if attempt.id in self._agent.ledger.running:
                        attempt.stage, attempt.began = Stage.RUNNING, began
                    launches.append((attempt.launch, self.lanes.of(attempt.id), attempt.start_by))
            runner.start_in_lanes(launches)
            point("after-started")
        except RunnerDown as error:
            for attempt in attempts:
                self._runner_down(attempt, error)
        except Exception as error:
            exit_ = self._failure(error)
            return [(attempt, exit_) for attempt in attempts]
        return failed

    def _start(self, attempt: Attempt) -> None:
        """Start it, in a thread that may have to wait: for files, for an image. It may be ended meanwhile."""
        try:
            if attempt.stage is Stage.PREPARING:
                attempt.preparing = True
                self._prepare_and_start(attempt)
        finally:
            if not attempt.light:
                self._agent.let_go(attempt)

    def _prepare_and_start(self, attempt: Attempt) -> None:
        try:
            with attempt.making:  # a preparation ahead may still be under way
                if not attempt.prepared:
                    self._make(attempt)
                if attempt.gpus:
                    attempt.launch = dataclasses.replace(attempt.launch, gpus=attempt.gpus)
                attempt.runner.prepare(attempt.launch)
            if attempt.gpus and not self.fresh(attempt):
                attempt.runner.discard(attempt.id)  # it was made for GPUs that are now given to another
            began = self._agent.clock()
            with self._agent.lock:
                ended = attempt.ending is not None or attempt.stage is not Stage.PREPARING
                if not ended and not self.fresh(attempt):  # a heartbeat must renew its lease first
                    return self._back_in_turn(attempt)
                if not ended:
                    attempt.started, attempt.stage, attempt.began = began, Stage.RUNNING, self._agent.lease_clock()
            if ended:
                return self._agent.over([(attempt, Exit(error="ended before it was started"))])
            self._agent.spool.started([attempt.id], attempt.runner.name, began, attempt.began, attempt.gpus)
            attempt.runner.start(dataclasses.replace(attempt.launch, start_by=attempt.start_by))
            point("after-started")
        except RunnerDown as error:
            self._runner_down(attempt, error)
        except Exception as error:
            self._agent.over([(attempt, self._failure(error))])
        return None

    def _failure(self, error: Exception) -> Exit:
        """How an attempt ends that could not be started. What nobody has foreseen ends it too, and is told."""
        if not isinstance(error, FORESEEN):
            self._agent.say(f"a fault in the worker: {''.join(traceback.format_exception(error))}")
        return Exit(error=str(error) or type(error).__name__)

    def _lay_out(self, attempt: Attempt) -> None:
        folders = self._agent.spool.folders
        workspace.make(attempt.launch, attempt.assignment, attempt.spec, self._agent.cache, folders)

    def _make(self, attempt: Attempt) -> None:
        """Lay out the workspace; while the coordinator cannot be reached for its files, wait and ask again."""
        end = self._agent.clock() + FETCH_SECONDS
        pause = threading.Event()
        while True:
            try:
                return self._lay_out(attempt)
            except Unreachable as error:
                if self._agent.clock() > end or attempt.ending is not None:
                    raise CannotStart(f"the files of the job cannot be fetched: {error}") from None
                pause.wait(2.0)
            except Refused as error:
                raise CannotStart(f"the files of the job cannot be fetched: {error}") from None

    def _runner_down(self, attempt: Attempt, error: Exception) -> None:
        """Nothing was started, and nothing can be: the attempt is given back, and no new work is taken."""
        if self._agent.gate.close("runner", f"{attempt.runner.name} does not work: {error}"):
            self._agent.say(f"{attempt.runner.name} does not work: {error}; no new work is taken until it does")
        with self._agent.lock:
            attempt.ending, attempt.ending_reason = Ending.RELEASE, f"the runner of the worker is down: {error}"
        self._agent.over([(attempt, Exit(error=str(error)))])

    def call_back(self, waited: float = 0.0) -> None:
        """Call back what has waited behind another one for so long: it takes its turn again, or is given back."""
        now = self._agent.clock()
        with self._agent.lock:
            waiting = [each for each in self._agent.attempts.values() if each.stage is Stage.NEXT]
        for attempt in waiting:
            if attempt.lanes is not None and attempt.ending is None and now - attempt.handed_at >= waited:
                attempt.lanes.recall(attempt.id)

    def called_back(self, attempt: Attempt) -> None:
        self._follow(self.lanes.leave(attempt.id))
        self._back_in_turn(attempt)

    def _back_in_turn(self, attempt: Attempt) -> None:
        """It is prepared, and was not started after all: it is the next one."""
        self._agent.ledger.back(attempt.id)
        self.give_gpus(attempt, ())
        attempt.stage, attempt.prepared = Stage.WAITING, True
        attempt.started = attempt.began = 0.0
        self.turn.appendleft(attempt.id)

    def _follow(self, name: str | None) -> None:
        """The one before it in its lane is over: it runs now, in the room that one had."""
        if name is None:
            return
        attempt = self._agent.attempts[name]
        now = self._agent.clock()
        self._agent.ledger.follow(name, now)
        if attempt.stage is Stage.NEXT:
            attempt.stage, attempt.started, attempt.began = Stage.RUNNING, now, self._agent.lease_clock()

    def left(self, attempt: Attempt) -> None:
        """It is over: its GPUs are free, and the next one in its lane runs."""
        self._gpus |= set(attempt.gpus)
        self._follow(self.lanes.leave(attempt.id))
