"""What a container engine promises to `ContainerRunner`. Another engine is one more module that keeps this promise."""

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
    """There is a container for this attempt already."""


class State(Enum):
    """What an engine knows about the program of a container."""

    CREATED = auto()
    RUNNING = auto()
    PAUSED = auto()
    ENDED = auto()
    #: The program is gone, and its end is not recorded: not yet, or never, because the power failed while it ran.
    LOST = auto()


@dataclass(frozen=True, slots=True)
class Seen:
    """A container as its engine describes it. The times are those of the wall clock, 0 if there is none."""

    id: str
    attempt: str
    state: State
    pid: int = 0
    #: The process without which nobody would learn the exit code.
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

    Each call has a deadline of its own. One that the engine refuses raises `EngineError`, and `RunnerDown` says that
    the engine does not answer. A container is named by its id or by `name_of` its attempt.
    """

    name: str
    #: Touched when a container runs out of memory, where the engine does not tell it of the container itself.
    oom_file: Path

    def check(self) -> None:
        """Raises an error if nothing can be run now."""

    def describe(self) -> Host: ...

    def name_of(self, attempt: str) -> str: ...

    def create(self, launch: Launch) -> str:
        """The id of a new container, isolated as the launch says. Raises `ImageMissing` or `NameTaken`."""

    def pull(self, image: str) -> None: ...

    def start(self, container: str) -> None: ...

    def inspect(self, container: str) -> Seen | None:
        """All that is known about a container, or None if it does not exist."""

    def kill(self, container: str, signal: str) -> None: ...

    def pause(self, container: str) -> None: ...

    def unpause(self, container: str) -> None: ...

    def commands(self, container: str) -> dict[str, list[str]]:
        """For SIGKILL, SIGSTOP and SIGCONT the command that does as much, for when the worker is dead."""

    def remove(self, container: str) -> None:
        """Remove it and end what it runs. One that does not exist is not an error."""

    def containers(self) -> list[tuple[str, str]]:
        """The id and the attempt of every container of this worker, running or not."""

    def log(self, launch: Launch) -> Log: ...

    def close(self) -> None:
        """Let go of the engine without touching what it runs."""
