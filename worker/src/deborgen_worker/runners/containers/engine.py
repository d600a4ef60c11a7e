"""What a container engine promises to `ContainerRunner`. To support another engine, write a module that keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from deborgen_worker.logs import Log
from deborgen_worker.runners.protocol import CannotStart, Host, Launch


class EngineError(CannotStart):
    """The engine understood the call and refused it."""


class ImageMissing(EngineError):
    """The image is not on this machine. It may be pulled."""


class NameTaken(EngineError):
    """There is already a container for this attempt."""


class ContainerState(Enum):
    """What an engine knows about the program of a container."""

    CREATED = auto()
    RUNNING = auto()
    PAUSED = auto()
    ENDED = auto()
    #: The program is gone and its end is not recorded: not yet, or never because of a power cut.
    LOST = auto()


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """A container as its engine describes it. Times are wall-clock times, or 0 if there is none."""

    id: str
    attempt: str
    state: ContainerState
    pid: int = 0
    #: The process that records the exit code.
    monitor: int = 0
    cgroup: str = ""
    code: int = -1
    error: str = ""
    oom_killed: bool = False
    started_at: float = 0.0
    finished_at: float = 0.0
    image: str = ""


class Engine(Protocol):
    """The calls that the runner makes, from any thread, for the containers of one worker.

    Each call has a deadline of its own. It raises `EngineError` if the engine refuses, and `RunnerDown` if the engine
    does not answer. A container is named by its id, or by `name_of` its attempt.
    """

    name: str
    #: Touched when any container runs out of memory, if the engine does not say so for each container.
    oom_file: Path

    def check(self) -> None:
        """Raise an error if the engine cannot run anything now."""

    def describe(self) -> Host: ...

    def name_of(self, attempt: str) -> str: ...

    def create(self, launch: Launch) -> str:
        """Create a container, isolated as the launch says, and return its id. Raises `ImageMissing` or `NameTaken`."""

    def pull(self, image: str) -> None: ...

    def start(self, container: str) -> None: ...

    def inspect(self, container: str) -> ContainerInfo | None:
        """What the engine knows about a container, or None if it does not exist."""

    def kill(self, container: str, signal: str) -> None: ...

    def pause(self, container: str) -> None: ...

    def unpause(self, container: str) -> None: ...

    def commands(self, container: str) -> dict[str, list[str]]:
        """Commands that do for a container what SIGKILL, SIGSTOP and SIGCONT do, for use while the worker is dead."""

    def remove(self, container: str) -> None:
        """End and remove a container. It is not an error if it does not exist."""

    def containers(self) -> list[tuple[str, str]]:
        """The id and the attempt of every container of this worker, running or not."""

    def log(self, launch: Launch) -> Log: ...

    def close(self) -> None:
        """Close the connection to the engine without touching its containers."""
