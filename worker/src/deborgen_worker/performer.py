"""Carries out the instructions of `lifecycle`: quick instructions at once and in order, slow ones in `Strands`."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from deborgen_shared.client.transport import NoAnswer, Refused
from deborgen_shared.states import Cause
from deborgen_worker import steps, workspace
from deborgen_worker.cache import BlobCache
from deborgen_worker.checkpoints import CannotSave
from deborgen_worker.crash import crash_point
from deborgen_worker.execution import Execution
from deborgen_worker.folders import remove
from deborgen_worker.journal import SpoolFullError
from deborgen_worker.reasons import without_host_paths
from deborgen_worker.repositories import Repositories
from deborgen_worker.results import ResultRecorder
from deborgen_worker.runners.protocol import CannotStart, Runner, RunnerDown, Unavailable
from deborgen_worker.spool import Spool
from deborgen_worker.strands import Strands, Work

#: Retry fetching the files of a job for this many seconds while the coordinator cannot be reached.
FETCH_SECONDS = 600.0
#: Prepare at most this many attempts at the same time.
PREPARE_AT_ONCE = 8
#: Errors with which a preparation or a start may fail. Any other error is a bug in the worker.
EXPECTED_ERRORS = (CannotStart, OSError, SpoolFullError, Refused, NoAnswer)


class Performer:
    """Passes the outcome of each instruction to `handle`. `is_wanted` says whether an attempt must still be
    prepared, `is_saving` whether its checkpoint must still be copied."""

    def __init__(
        self,
        spool: Spool,
        cache: BlobCache,
        *,
        clock: Callable[[], float],
        lease_clock: Callable[[], float],
        say: Callable[[str], None],
        run_slow: Callable[[Work], object],
        handle: Callable[[list[steps.AttemptEvent]], None],
        is_wanted: Callable[[str], bool],
        is_saving: Callable[[str], bool] = lambda _name: True,
        repositories: Repositories | None = None,
    ) -> None:
        self._repositories = repositories
        self._spool, self._cache, self._clock, self._lease_clock = spool, cache, clock, lease_clock
        self._say, self._handle, self._is_wanted, self._is_saving = say, handle, is_wanted, is_saving
        self._strands = Strands(run_slow)
        self._results = ResultRecorder(spool, clock, say, handle)
        #: Preparations may take minutes. They must not occupy all threads, because signals and results need some too.
        self._preparing = threading.BoundedSemaphore(PREPARE_AT_ONCE)
        #: Attempts whose programs or containers could not be removed, with their runners. The removal is retried.
        self.leftovers: dict[str, Runner] = {}

    @property
    def busy(self) -> bool:
        """Whether slow work waits or is being done, for example the removal of a container."""
        return self._strands.busy

    def perform(self, todo: list[tuple[steps.Instruction, Execution]]) -> None:
        """Carry out instructions in order. All inline starts share one journal write, and so do all inline results."""
        starts = [
            (do, execution)
            for do, execution in todo
            if isinstance(do, steps.Start | steps.Follow) and execution.starts_inline
        ]
        ends = [
            (do, execution)
            for do, execution in todo
            if isinstance(do, steps.Collect) and (execution.collects_inline or not do.ran)
        ]
        if starts:
            self._start_inline(starts)
        done = {id(do) for do, _ in [*starts, *ends]}
        for do, execution in todo:
            if id(do) not in done:
                failed = {steps.Prepare: steps.NotPrepared, steps.Start: steps.NotStarted}.get(type(do))
                work = partial(self._guarded, partial(self._carry_out, do, execution), execution.id, failed)
                slow = not execution.starts_inline or isinstance(do, steps.Collect)
                # A copy may take long, and no signal may wait for it.
                strand = f"{execution.id} copy" if isinstance(do, steps.CopyCheckpoint) else execution.id
                self._strands.run(strand, work) if slow else work()
        if ends:
            self._results.record(ends)

    def _guarded(self, work: Work, name: str, failed: type[steps.NotPrepared] | None) -> None:
        """Do this work. A bug in it must neither end the thread nor leave the attempt without an end."""
        try:
            work()
        except Exception as error:
            self._failed([name], failed, error)

    def _failed(self, names: list[str], failed: type[steps.NotPrepared] | None, error: Exception) -> None:
        if not isinstance(error, EXPECTED_ERRORS) or failed is None:
            self._say(f"internal error in the worker: {''.join(traceback.format_exception(error))}")
        if failed is not None:
            words, down = str(error) or type(error).__name__, isinstance(error, RunnerDown)
            if without_host_paths(words) != words:  # only the owner sees these paths
                self._say(f"{', '.join(names)} could not be started: {words}")
            cause, detail = (error.cause, error.detail) if isinstance(error, Unavailable) else ("", "")
            if detail:
                self._say(f"{', '.join(names)}: {words} ({detail})")
            self._handle([failed(name, words, down, cause) for name in names])

    def _carry_out(self, do: steps.Instruction, execution: Execution) -> None:
        runner, name = execution.runner, execution.id
        match do:
            case steps.Prepare(gpus=gpus):
                with self._preparing:
                    if self._is_wanted(name):
                        if name in self.leftovers:  # a container that was made for other GPUs
                            runner.discard(name)
                            del self.leftovers[name]
                        self._lay_out(execution)
                        execution.launch.gpus = gpus
                        runner.prepare(execution.launch)
                        self._handle([steps.Prepared(name)])
            case steps.Start(start_by=start_by) if self._lease_clock() >= start_by:
                self._handle([steps.Returned(name)])  # too late: a heartbeat must renew its lease first
            case steps.Start(start_by=start_by, began=began, gpus=gpus):
                self._spool.started({name: gpus}, runner.name, self._clock(), began)
                execution.launch.start_by = start_by
                runner.start(execution.launch)
                crash_point("after-started")
            case steps.Recall():
                runner.recall(name)  # type: ignore[attr-defined]
            case steps.Signal(word=word, stop=stop, thaw=thaw):
                if stop.killed_at is None:
                    with contextlib.suppress(SpoolFullError):  # the record matters only after a crash
                        self._spool.stopped(name, stop.cause.value, stop.reason)
                self._report_failure(name, f"could not be sent {word}", partial(signal_to, runner, name, word, thaw))
            case steps.Freeze():
                try:
                    runner.freeze(name)
                except CannotStart as error:
                    self._handle([steps.NotFrozen(name, str(error))])
                else:
                    if execution.checkpoints is not None:
                        self._handle([steps.Frozen(name)])
            case steps.CopyCheckpoint():
                self._copy_checkpoint(execution)
            case steps.Thaw():
                try:
                    runner.thaw(name)
                except CannotStart:
                    self._handle([steps.NotThawed(name)])
            case steps.Collect():
                self._results.record([(do, execution)])
            case steps.Discard(touched=touched, folder=folder):
                self._discard(execution, touched, folder)

    def _copy_checkpoint(self, execution: Execution) -> None:
        """Copy the checkpoint, and say so in any case: the program is frozen until then."""
        saved, name, complete = execution.checkpoints, execution.id, False
        assert saved is not None
        try:
            if execution.runner.is_frozen(name):
                complete = saved.copy(partial(self._is_saving, name))
        except (CannotSave, CannotStart) as problem:
            if self._is_saving(name) and saved.warn(str(problem)):
                self._say(f"a checkpoint of {name} could not be saved: {problem}")
        finally:
            self._handle([steps.Copied(name, complete)])

    def _report_failure(self, name: str, words: str, work: Work) -> None:
        try:
            work()
        except CannotStart as error:
            self._say(f"{name} {words}: {error}")

    def _lay_out(self, execution: Execution) -> None:
        """Lay out the workspace. While the coordinator cannot be reached for its files, wait and retry."""
        end, pause = self._clock() + FETCH_SECONDS, threading.Event()
        while not execution.workspace_ready:
            try:
                check_out = self._find_commit(execution) if execution.spec.repository is not None else None
                workspace.lay_out(
                    execution.launch, execution.assignment, execution.spec, self._cache, self._spool.folders, check_out
                )
                execution.workspace_ready = True
            except NoAnswer as error:
                if self._clock() > end or not self._is_wanted(execution.id):
                    raise CannotStart(f"the files of the job cannot be fetched: {error}") from None
                pause.wait(2.0)
            except Refused as error:
                raise Unavailable(Cause.WORKSPACE, f"the files of the job cannot be fetched: {error}") from None
            except OSError as error:
                raise Unavailable(Cause.WORKSPACE, f"the workspace cannot be prepared: {error}") from None

    def _find_commit(self, execution: Execution) -> workspace.CheckOut:
        """Find the commit of the job's repository, fill in what the job looks up about it, and return the checkout."""
        found, assignment, spec = self._repositories, execution.assignment, execution.spec
        if found is None:
            raise CannotStart("the owner of this worker does not allow jobs to use repositories")
        wanted = partial(self._is_wanted, execution.id)
        commit = found.commit_of(assignment, spec, wanted)
        execution.fill_in(commit)
        return workspace.CheckOut(commit, partial(found.check_out, assignment, spec, commit, wanted=wanted))

    def _start_inline(self, todo: list[tuple[steps.Start | steps.Follow, Execution]]) -> None:
        """Start these attempts, or let them follow others, with one journal write and one message to the runner."""
        for _, execution in todo:
            self._guarded(partial(self._lay_out, execution), execution.id, steps.NotStarted)
        ready = [(do, execution) for do, execution in todo if execution.workspace_ready]
        for kind in (steps.Start, steps.Follow):
            if some := [(do, execution) for do, execution in ready if isinstance(do, kind)]:
                self._hand_over(some, kind)
        crash_point("after-started")

    def _hand_over(self, todo: list[tuple[Any, Execution]], kind: type[steps.Start | steps.Follow]) -> None:
        runner: Any = todo[0][1].runner
        try:
            gpus = {execution.id: getattr(do, "gpus", ()) for do, execution in todo}
            self._spool.started(gpus, runner.name, self._clock(), self._lease_clock())
            for do, execution in todo:
                execution.launch.start_by = do.start_by
            launches = [execution.launch for _, execution in todo]
            runner.start_all(launches) if kind is steps.Start else runner.follow(launches)
        except Exception as error:
            self._failed([execution.id for _, execution in todo], steps.NotStarted, error)

    # Removing

    def _discard(self, execution: Execution, touched: bool, folder: bool) -> None:
        if touched:
            try:
                execution.runner.discard(execution.id)
            except CannotStart:
                self.leftovers[execution.id] = execution.runner
        if folder and execution.checkpoints is not None:
            execution.checkpoints.close()
        if folder and not execution.keep_folder:
            self.remove(execution.launch.folder)

    def remove(self, folder: Path) -> None:
        """Keep the folder for a later attempt if it is clean. Otherwise remove it in a thread, because it may be
        large."""
        if not self._spool.folders.recycle(folder):
            self._strands.run(str(folder), partial(self._remove_slowly, folder))

    def _remove_slowly(self, folder: Path) -> None:
        if not remove(folder):
            self._say(f"{folder} could not be removed")

    def retry_cleanup(self) -> None:
        """Retry the removals that failed. Look for no other leftovers: a worker of another pool may have this name."""
        for name, runner in list(self.leftovers.items()):
            with contextlib.suppress(CannotStart):
                runner.discard(name)
                del self.leftovers[name]


def signal_to(runner: Runner, name: str, word: str, thaw: bool) -> None:
    """Send TERM or KILL. With `thaw`, wake the program first, because a frozen program does not notice signals."""
    if thaw:
        with contextlib.suppress(CannotStart):
            runner.thaw(name)
    runner.signal(name, word)
