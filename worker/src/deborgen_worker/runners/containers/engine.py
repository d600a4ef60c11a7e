"""The interface of a container engine. To support another engine, implement `Engine`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple, Protocol

from deborgen_shared.states import Cause
from deborgen_worker.logs import Log
from deborgen_worker.runners.protocol import CannotStart, Host, Launch


class EngineError(CannotStart):
    """The engine understood the call and refused it."""


class ImageMissing(EngineError):
    """The image is not on this machine. It may be pulled."""


class PullFailed(EngineError):
    """An image could not be pulled. `cause` says why; the message is for the owner of the machine alone."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class NameTaken(EngineError):
    """There is already a container for this attempt."""


class ContainerState(Enum):
    """The state of a container's program, according to the engine."""

    CREATED = auto()
    RUNNING = auto()
    PAUSED = auto()
    ENDED = auto()
    #: The program is gone, but its end is not recorded: not yet, or never, after a power cut.
    LOST = auto()


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """A container as its engine describes it. Times are on the wall clock, or 0 if they are not known."""

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


class BuildGroup(NamedTuple):
    """The control group of a build, as the engine names it, and whether systemd manages it."""

    parent: str
    systemd: bool


class Engine(Protocol):
    """The calls that the runner makes, from any thread, for the containers of one worker.

    Each call has a deadline of its own. It raises `EngineError` if the engine refuses, and `RunnerDown` if the engine
    does not answer. `container` is a container's id, or the name that `name_of` gives for its attempt.
    """

    name: str
    #: A file that is touched when any container runs out of memory, for engines that do not report which one did.
    oom_file: Path

    def check(self) -> None:
        """Raise an error if the engine cannot run anything now."""

    def describe(self) -> Host: ...

    def name_of(self, attempt: str) -> str: ...

    def create(self, launch: Launch) -> str:
        """Create a container, isolated as the launch says, and return its id. Raises `ImageMissing` or `NameTaken`."""

    def pull(self, image: str, credentials: str = "", *, plain: bool = False) -> None:
        """Pull an image. Raises `PullFailed`. The credentials are `USER:PASSWORD`; `plain` means plain HTTP."""

    def has_image(self, image: str) -> bool:
        """Whether an image is on this machine, by its name or id."""

    def load_image(self, path: Path) -> None:
        """Load the image in an archive, which was checked."""

    def remove_image(self, image: str) -> bool:
        """Remove an image. False if a container uses it; it is not an error if it does not exist."""

    def build_group(self, name: str) -> BuildGroup:
        """The control group for a build."""

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

    def remove_images(self) -> list[str]:
        """Remove the images that this worker has pulled and nobody else uses, and return their names."""

    def log(self, launch: Launch) -> Log: ...

    def close(self) -> None:
        """Close the connection to the engine without touching its containers."""
