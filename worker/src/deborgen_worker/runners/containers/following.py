"""Follows containers until they end, and learns from their engine how they ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from dataclasses import dataclass, field

from deborgen_worker.attempts import Exit
from deborgen_worker.runners.containers.engine import Engine, EngineError, Seen, State
from deborgen_worker.runners.containers.judging import judge
from deborgen_worker.runners.containers.usage import Usage, groups_of, usage_of
from deborgen_worker.runners.containers.watch import Gone, wait_until_gone
from deborgen_worker.runners.protocol import CannotStart, Launch, RunnerDown, Tell
from deborgen_worker.runners.supervision import Supervision
from deborgen_worker.steps import Exited

#: After the program is gone, how many seconds the engine may take to know its exit code.
KNOW_SECONDS = 15.0
POLL_SECONDS = 0.5


@dataclass(eq=False)
class Container:
    """One that this session created or adopted. `started` is a moment on the steady clock, 0 before its start."""

    id: str
    launch: Launch
    started: float = 0.0
    signalled: bool = False
    frozen: bool = False
    over: bool = False
    #: Held while it is started, frozen, woken or sent a signal: none of these is asked for in the midst of another.
    steering: threading.Lock = field(default_factory=threading.Lock)


class Follower:
    """Tells once about each container that it follows: how it ended, or that nobody knows."""

    def __init__(self, engine: Engine, tell: Tell, supervision: Supervision) -> None:
        self._engine, self._tell, self._supervision = engine, tell, supervision

    def follow(self, container: Container) -> None:
        """A container that was started, or has ended. It has a thread of its own, which waits with it."""
        threading.Thread(target=self._follow, args=(container,), name="containers", daemon=True).start()

    def ended(self, container: Container, exit_: Exit) -> None:
        over, container.over = container.over, True
        if not over:
            exit_ = dataclasses.replace(exit_, **self._supervision.unwatch(container.launch.attempt))
            self._tell([Exited(container.launch.attempt, exit_)])

    def _follow(self, container: Container) -> None:
        try:
            exit_ = self._end_of(container)
        except Exception as error:  # whatever goes wrong here, the attempt ends
            exit_ = Exit(error=f"a fault in the worker: {type(error).__name__}: {error}")
        self.ended(container, exit_)

    def _end_of(self, container: Container) -> Exit:
        seen, gone, usage = None, None, Usage()
        with contextlib.suppress(CannotStart):  # it runs: what is known about it can wait
            seen = self._engine.inspect(container.id)
        if seen is not None:
            groups = groups_of(container.id, seen.pid, seen.cgroup)
            gone = wait_until_gone(seen.pid, seen.monitor)
            if gone is Gone.PROGRAM or seen.state is State.ENDED:
                usage = usage_of(groups)  # the cgroup is still there for a moment: now is the time to read it
            if gone is Gone.MONITOR:
                with contextlib.suppress(OSError):
                    os.kill(seen.pid, signal.SIGKILL)
                return Exit(error="its monitor was killed: nobody knows how the program would have ended")
        return self._ask(container, usage, gone=gone is not None)

    def _ask(self, container: Container, usage: Usage, *, gone: bool) -> Exit:
        """Ask the engine until it knows how the program ended: its state must say so, a code alone proves nothing.

        While the program is not known to be gone, the engine is asked now and then, however long that takes.
        """
        end, pause, trouble = float("inf"), 0.002, "its end was not recorded"
        while not container.over and time.monotonic() < end:
            try:
                seen = self._engine.inspect(container.id)
            except EngineError as error:
                trouble, pause = str(error), POLL_SECONDS
            except RunnerDown:
                end, pause = float("inf"), POLL_SECONDS  # it will be back, and so will the answer
            else:
                if seen is None:
                    return Exit(error="its container was removed by somebody")
                if seen.state is State.ENDED:
                    return self._judged(container, seen, usage)
                gone = gone or seen.state is State.LOST
            if gone:
                end = min(end, time.monotonic() + KNOW_SECONDS)
            time.sleep(pause)
            pause = min(pause * 1.5, POLL_SECONDS)
        return Exit(error=f"its program is gone, and {self._engine.name} does not say how it ended: {trouble}")

    def _judged(self, container: Container, seen: Seen, usage: Usage) -> Exit:
        watched = max(0.0, time.monotonic() - container.started)
        marked = False
        with contextlib.suppress(OSError):
            marked = time.time() - self._engine.oom_file.stat().st_mtime <= watched
        exit_ = judge(container.launch, seen, usage, signalled=container.signalled, watched=watched, marked=marked)
        if exit_.out_of_memory:
            self._engine.oom_file.unlink(missing_ok=True)  # it has spoken for this container, and shall not for another
        return exit_
