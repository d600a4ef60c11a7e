"""Carries out what `lifecycle` has decided: quick instructions at once, in their order, and slow ones in `Strands`."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from deborgen_shared.client.transport import Refused, Unreachable
from deborgen_shared.messages import Result
from deborgen_shared.states import Outcome
from deborgen_worker import steps, workspace
from deborgen_worker.cache import BlobCache
from deborgen_worker.crash import point
from deborgen_worker.execution import Execution, result_of
from deborgen_worker.folders import remove
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.runners.protocol import CannotStart, Runner, RunnerDown
from deborgen_worker.spool import Ended, Spool
from deborgen_worker.strands import Strands, Work

#: How long the files of a job are asked for when the coordinator cannot be reached.
FETCH_SECONDS = 600.0
#: How many attempts are prepared at the same time.
PREPARE_AT_ONCE = 8
#: Why a start can fail; anything else is a fault of the worker.
FORESEEN = (CannotStart, OSError, SpoolFullError, Refused, Unreachable)


class Performer:
    """What comes of an instruction is told to `handle`. `is_wanted` says whether an attempt may still be prepared."""

    def __init__(
        self,
        spool: Spool,
        cache: BlobCache,
        *,
        clock: Callable[[], float],
        lease_clock: Callable[[], float],
        say: Callable[[str], None],
        run_slow: Callable[[Work], object],
        handle: Callable[[list[steps.Event]], None],
        is_wanted: Callable[[str], bool],
    ) -> None:
        self._spool, self._cache, self._clock, self._lease_clock = spool, cache, clock, lease_clock
        self._say, self._handle, self._is_wanted = say, handle, is_wanted
        self._strands = Strands(run_slow)
        #: What takes minutes must not keep all threads from what takes a moment: signals, freezes, results.
        self._preparing = threading.BoundedSemaphore(PREPARE_AT_ONCE)
        #: What a runner could not remove, by attempt: it is tried again once the runner is well.
        self.leftovers: dict[str, Runner] = {}

    def perform(self, todo: list[tuple[steps.Instruction, Execution]]) -> None:
        """Quick starts and quick results go together: each of them shares one write and one message."""
        starts = [(do, made) for do, made in todo if isinstance(do, steps.Start | steps.Follow) and made.light]
        ends = [(do, made) for do, made in todo if isinstance(do, steps.Collect) and (made.quick or not do.ran)]
        if starts:
            self._start_light(starts)
        done = {id(do) for do, _ in [*starts, *ends]}
        for do, made in todo:
            if id(do) not in done:
                failed = {steps.Prepare: steps.NotPrepared, steps.Start: steps.NotStarted}.get(type(do))
                work = partial(self._guarded, partial(self._do, do, made), made.id, failed)
                slow = not made.light or isinstance(do, steps.Collect)
                self._strands.run(made.id, work) if slow else work()
        if ends:
            self._write_down([self._result(made, do) for do, made in ends])
            self._handle([steps.Collected(made.id) for _, made in ends])

    def _guarded(self, work: Work, name: str, failed: type[steps.NotPrepared] | None) -> None:
        """A fault of ours must not silence a thread, nor leave an attempt without an end."""
        try:
            work()
        except Exception as error:
            self._failed([name], failed, error)

    def _failed(self, names: Iterable[str], failed: type[steps.NotPrepared] | None, error: Exception) -> None:
        if not isinstance(error, FORESEEN) or failed is None:
            self._say(f"a fault in the worker: {''.join(traceback.format_exception(error))}")
        if failed is not None:
            words, down = str(error) or type(error).__name__, isinstance(error, RunnerDown)
            self._handle([failed(name, words, down) for name in names])

    def _do(self, do: steps.Instruction, made: Execution) -> None:
        runner, name = made.runner, made.id
        match do:
            case steps.Prepare(gpus=gpus):
                with self._preparing:
                    if self._is_wanted(name):
                        if name in self.leftovers:  # what was made of it for other GPUs
                            runner.discard(name)
                            del self.leftovers[name]
                        self._make(made)
                        made.launch.gpus = gpus
                        runner.prepare(made.launch)
                        self._handle([steps.Prepared(name)])
            case steps.Start(start_by=start_by) if self._lease_clock() >= start_by:
                self._handle([steps.Returned(name)])  # its thread was late: a heartbeat must renew its lease first
            case steps.Start(start_by=start_by, began=began, gpus=gpus):
                self._spool.started({name: gpus}, runner.name, self._clock(), began)
                made.launch.start_by = start_by
                runner.start(made.launch)
                point("after-started")
            case steps.Recall():
                runner.recall(name)  # type: ignore[attr-defined]
            case steps.Signal(word=word, stop=stop, thaw=thaw):
                if stop.killed_at is None:
                    with contextlib.suppress(SpoolFullError):  # only a crash before the program's end would miss it
                        self._spool.stopped(name, stop.ending.value, stop.reason)
                self._quietly(name, f"could not be sent {word}", partial(signal_to, runner, name, word, thaw))
            case steps.Freeze():
                try:
                    runner.freeze(name)
                except CannotStart as error:
                    self._handle([steps.NotFrozen(name, str(error))])
            case steps.Thaw():
                try:
                    runner.thaw(name)
                except CannotStart:
                    self._handle([steps.NotThawed(name)])
            case steps.Collect():
                self._write_down([self._result(made, do)])
                self._handle([steps.Collected(name)])
            case steps.Discard(touched=touched, folder=folder):
                self._discard(made, touched, folder)

    def _quietly(self, name: str, words: str, work: Work) -> None:
        try:
            work()
        except CannotStart as error:
            self._say(f"{name} {words}: {error}")

    def _make(self, made: Execution) -> None:
        """Lay out the workspace; while the coordinator cannot be reached for its files, wait and ask again."""
        end, pause = self._clock() + FETCH_SECONDS, threading.Event()
        while not made.is_made:
            try:
                workspace.make(made.launch, made.assignment, made.spec, self._cache, self._spool.folders)
                made.is_made = True
            except Unreachable as error:
                if self._clock() > end or not self._is_wanted(made.id):
                    raise CannotStart(f"the files of the job cannot be fetched: {error}") from None
                pause.wait(2.0)
            except Refused as error:
                raise CannotStart(f"the files of the job cannot be fetched: {error}") from None

    def _start_light(self, todo: list[tuple[steps.Start | steps.Follow, Execution]]) -> None:
        """Start these, or let them follow others, with one write to the journal and one message to their runner."""
        for _, made in todo:
            self._guarded(partial(self._make, made), made.id, steps.NotStarted)
        ready = [(do, made) for do, made in todo if made.is_made]
        for kind in (steps.Start, steps.Follow):
            if some := [(do, made) for do, made in ready if isinstance(do, kind)]:
                self._hand_over(some, kind)
        point("after-started")

    def _hand_over(self, todo: list[tuple[Any, Execution]], kind: type[steps.Start | steps.Follow]) -> None:
        runner: Any = todo[0][1].runner
        try:
            gpus = {made.id: getattr(do, "gpus", ()) for do, made in todo}
            self._spool.started(gpus, runner.name, self._clock(), self._lease_clock())
            for do, made in todo:
                made.launch.start_by = do.start_by
            launches = [made.launch for _, made in todo]
            runner.start_all(launches) if kind is steps.Start else runner.follow(launches)
        except Exception as error:
            self._failed([made.id for _, made in todo], steps.NotStarted, error)

    def _result(self, made: Execution, end: steps.Collect) -> Ended:
        try:
            return result_of(made, end)
        except Exception as error:
            reason = f"the output could not be collected: {error}"
            plain = Result(attempt=end.name, outcome=Outcome.ERROR.value, reason=reason)
            return Ended(end.name, plain, began=end.began)

    def _write_down(self, results: list[Ended]) -> None:
        point("after-collected")
        try:
            self._spool.ended(*results)
        except (SpoolFullError, OSError):
            # Not even the reserve is left: they are told without being written down, which is the best there is.
            for each in results:
                self._spool.entries[each.attempt].result = each.result
        except Exception as error:
            # One that cannot be written must not keep the others from it, nor end the thread that brought them.
            if len(results) > 1:
                for each in results:
                    self._write_down([each])
                return
            name = results[0].attempt
            self._say(f"the result of {name} cannot be written down: {error!r}")
            reason = f"its result cannot be written down: {error!r}"[:2000]
            self._write_down([Ended(name, Result(attempt=name, outcome=Outcome.ERROR.value, reason=reason))])

    # Removing

    def _discard(self, made: Execution, touched: bool, folder: bool) -> None:
        if touched:
            try:
                made.runner.discard(made.id)
            except CannotStart:
                self.leftovers[made.id] = made.runner
        if folder and not made.keep:
            self.remove(made.launch.folder)

    def remove(self, folder: Path) -> None:
        """Keep the folder for the next attempt if nothing is in it. How long the rest takes, its job has decided."""
        if not self._spool.folders.recycle(folder):
            self._strands.run(str(folder), partial(self._remove_slowly, folder))

    def _remove_slowly(self, folder: Path) -> None:
        if not remove(folder):
            self._say(f"{folder} could not be removed")

    def clean_again(self) -> None:
        """Remove what could not be removed before, and nothing else: another pool's worker may have our name."""
        for name, runner in list(self.leftovers.items()):
            with contextlib.suppress(CannotStart):
                runner.discard(name)
                del self.leftovers[name]


def signal_to(runner: Runner, name: str, word: str, thaw: bool) -> None:
    """Send TERM or KILL. A program that is frozen would not notice."""
    if thaw:
        with contextlib.suppress(CannotStart):
            runner.thaw(name)
    runner.signal(name, word)
