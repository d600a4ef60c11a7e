"""Programs whose worker is dead, for its owner's commands: all that carry the mark of a state directory.

The supervisor is asked first. Containers are also found by their labels, and processes by their environment, because
the supervisor may be dead too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from deborgen_worker import control, session
from deborgen_worker.runners.builds.runner import sweep_all
from deborgen_worker.runners.containers.creating import remove
from deborgen_worker.runners.containers.engine import ContainerInfo, ContainerState, Engine, EngineError
from deborgen_worker.runners.leftovers import ATTEMPT_VARIABLE, end_leftovers, environment, leftovers
from deborgen_worker.runners.protocol import CannotStart

#: Wait at most this many seconds for the supervisor to end its programs, and itself.
END_SECONDS = 10.0
#: In these states, the program of a container has begun and not ended.
ALIVE = {ContainerState.RUNNING, ContainerState.PAUSED}


class Abandoned(NamedTuple):
    """A program without a worker: for how many seconds it has run, or None if nobody knows, and whether it is
    frozen."""

    seconds: float | None
    frozen: bool


class Unattended:
    """The programs of a dead worker, by attempt. `trouble` says why Podman cannot be reached; empty if it can."""

    def __init__(self, state: Path) -> None:
        self._state, self.trouble = state, ""
        self._engine: Engine | None = None
        with self._noting_trouble(), contextlib.suppress(OSError):  # it may be another user's
            if (state / "podman").exists():
                from deborgen_worker.runners.podman.engine import PodmanEngine  # slow to import, and not always needed

                self._engine = PodmanEngine.of_dead_worker(state)

    def __enter__(self) -> Unattended:
        return self

    def __exit__(self, *_: object) -> None:
        if self._engine is not None:
            self._engine.close()

    def find(self, do: str = "status") -> dict[str, Abandoned]:
        """Find the programs, and make the supervisor `pause`, `resume` or `stop` its own at once."""
        supervised = control.ask_supervisor(self._state, do).get("programs", {})
        found: dict[str, Abandoned] = {}
        for pid in leftovers(str(self._state)):
            names = [word[len(ATTEMPT_VARIABLE) :] for word in environment(pid) if word.startswith(ATTEMPT_VARIABLE)]
            found |= {os.fsdecode(name): Abandoned(None, _is_stopped(pid)) for name in names}
        for _, container in self._containers():
            seconds = time.time() - container.started_at if container.started_at else None
            frozen = container.state is ContainerState.PAUSED
            found[container.attempt or container.id[:12]] = Abandoned(seconds, frozen)
        return found | {name: Abandoned(*values) for name, values in supervised.items()}

    def freeze(self) -> dict[str, Abandoned]:
        found = self.find("pause")
        self._signal(signal.SIGSTOP)
        for engine, container in self._containers():
            if container.state is ContainerState.RUNNING:
                with contextlib.suppress(EngineError):  # it has ended, or the supervisor was quicker
                    engine.pause(container.id)
        return found

    def wake(self) -> dict[str, Abandoned]:
        found = self.find("resume")
        self._signal(signal.SIGCONT)
        for engine, container in self._containers():
            if container.state is ContainerState.PAUSED:
                with contextlib.suppress(EngineError):
                    engine.unpause(container.id)
        return found

    def end(self) -> dict[str, Abandoned]:
        """End and remove everything, and the supervisor too, unless it runs apart. Returns what was found before."""
        found = self.find("stop")
        until = time.monotonic() + END_SECONDS
        while (held := session.lock(self._state, "supervisor.lock")) is None and time.monotonic() < until:
            left = control.ask_supervisor(self._state, "status")
            if left.get("stays") and not left["programs"]:
                break
            time.sleep(0.02)
        if held is not None:
            os.close(held)
        end_leftovers(str(self._state))
        sweep_all(self._state)
        if self._engine is not None:
            with self._noting_trouble():
                for container, _ in self._engine.containers():
                    remove(self._engine, container)
        return found

    def _signal(self, number: signal.Signals) -> None:
        for pid in leftovers(str(self._state)):
            with contextlib.suppress(OSError):  # it has ended
                os.killpg(os.getpgid(pid), number)

    def _containers(self) -> list[tuple[Engine, ContainerInfo]]:
        found: list[tuple[Engine, ContainerInfo]] = []
        if (engine := self._engine) is not None:
            with self._noting_trouble():
                seen = [engine.inspect(container) for container, _ in engine.containers()]
                found = [(engine, each) for each in seen if each is not None and each.state in ALIVE]
        return found

    @contextlib.contextmanager
    def _noting_trouble(self) -> Iterator[None]:
        try:
            yield
        except CannotStart as error:
            self.trouble = str(error)


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False
