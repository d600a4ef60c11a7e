"""Follow containers until they end, and ask their engine how they ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from dataclasses import dataclass, field

from deborgen_worker.attempts import Exit
from deborgen_worker.runners.containers.engine import ContainerInfo, ContainerState, Engine, EngineError
from deborgen_worker.runners.containers.judging import judge
from deborgen_worker.runners.containers.usage import Usage, groups_of, usage_of
from deborgen_worker.runners.containers.watch import Gone, parent_of, wait_until_gone
from deborgen_worker.runners.priority import give_way, lower_session
from deborgen_worker.runners.protocol import CannotStart, Launch, Report, RunnerDown
from deborgen_worker.runners.supervision import Supervision
from deborgen_worker.steps import Exited

#: After the program is gone, ask the engine for its exit code for this many seconds.
EXIT_CODE_SECONDS = 15.0
#: The longest pause between two questions to the engine.
POLL_SECONDS = 0.5


@dataclass(eq=False)
class Container:
    """A container that this session created or adopted. `started` is on the monotonic clock, and 0 until the start."""

    id: str
    launch: Launch
    started: float = 0.0
    signalled: bool = False
    frozen: bool = False
    finished: bool = False
    #: Held while the container is started, frozen, woken or sent a signal: only one of these happens at a time.
    steering: threading.Lock = field(default_factory=threading.Lock)


class Follower:
    """Reports the end of each container exactly once: how it ended, or that nobody knows."""

    def __init__(self, engine: Engine, report: Report, supervision: Supervision) -> None:
        self._engine, self._report, self._supervision = engine, report, supervision

    def follow(self, container: Container) -> None:
        """Follow a started container in a thread of its own. The container may have ended already."""
        threading.Thread(target=self._follow, args=(container,), name="containers", daemon=True).start()

    def ended(self, container: Container, exit_: Exit) -> None:
        finished, container.finished = container.finished, True
        if not finished:
            exit_ = dataclasses.replace(exit_, **self._supervision.unwatch(container.launch.attempt))
            self._report([Exited(container.launch.attempt, exit_)])

    def _follow(self, container: Container) -> None:
        try:
            exit_ = self._end_of(container)
        except Exception as error:  # whatever goes wrong here, the attempt must end
            exit_ = Exit(error=f"internal error in the worker: {type(error).__name__}: {error}")
        self.ended(container, exit_)

    def _end_of(self, container: Container) -> Exit:
        seen, gone, usage = None, None, Usage()
        with contextlib.suppress(CannotStart):  # without the pid, the engine is polled below
            seen = self._engine.inspect(container.id)
        if seen is not None:
            groups = groups_of(container.id, seen.pid, seen.cgroup)
            if container.launch.gives_way and seen.pid and parent_of(seen.pid) == seen.monitor:  # on this machine
                give_way(seen.pid)
                lower_session(seen.pid)
            gone = wait_until_gone(seen.pid, seen.monitor)
            if gone is Gone.PROGRAM or seen.state is ContainerState.ENDED:
                usage = usage_of(groups)  # read it now: the cgroup exists only for a moment longer
            if gone is Gone.MONITOR:
                with contextlib.suppress(OSError):
                    os.kill(seen.pid, signal.SIGKILL)
                return Exit(error="its monitor was killed, so nobody knows how the program ended")
        return self._ask(container, usage, gone=gone is not None)

    def _ask(self, container: Container, usage: Usage, *, gone: bool) -> Exit:
        """Ask the engine until it says how the program ended. Only the container's state counts: an exit code alone
        proves nothing.

        While the program may still run, the engine is polled for as long as it takes.
        """
        end, pause, trouble = float("inf"), 0.002, "the end was not recorded"
        while not container.finished and time.monotonic() < end:
            try:
                seen = self._engine.inspect(container.id)
            except EngineError as error:
                trouble, pause = str(error), POLL_SECONDS
            except RunnerDown:
                end, pause = float("inf"), POLL_SECONDS  # the engine will be back, and will know
            else:
                if seen is None:
                    return Exit(error="its container was removed by somebody else")
                if seen.state is ContainerState.ENDED:
                    return self._judged(container, seen, usage)
                gone = gone or seen.state is ContainerState.LOST
            if gone:
                end = min(end, time.monotonic() + EXIT_CODE_SECONDS)
            time.sleep(pause)
            pause = min(pause * 1.5, POLL_SECONDS)
        return Exit(error=f"its program is gone, and {self._engine.name} does not say how it ended: {trouble}")

    def _judged(self, container: Container, seen: ContainerInfo, usage: Usage) -> Exit:
        watched = max(0.0, time.monotonic() - container.started)
        # A program may run out of memory before the engine has answered that it started.
        began = min(time.time() - watched, seen.started_at or float("inf"))
        marked = False
        with contextlib.suppress(OSError):
            marked = self._engine.oom_file.stat().st_mtime >= began
        exit_ = judge(container.launch, seen, usage, signalled=container.signalled, watched=watched, marked=marked)
        if exit_.out_of_memory:
            self._engine.oom_file.unlink(missing_ok=True)  # it must not count for another container as well
        return exit_
