"""The interface of a runner."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deborgen_shared.jobfile.model import Build
from deborgen_shared.messages import PoolImage, PushTarget
from deborgen_shared.states import Cause
from deborgen_worker.logs import Log
from deborgen_worker.steps import Adopted, AttemptEvent

#: The variable that tells a program when its time limit ends, in seconds since 1970.
DEADLINE = "DEBORGEN_DEADLINE"
#: A `start_by` that never passes.
ANY_TIME = 1e18


class CannotStart(Exception):
    """The program could not be started, through no fault of its own: an infrastructure failure."""


class Unavailable(CannotStart):
    """The image or the workspace cannot be had here. `cause` says which, and why; `detail` is for the owner alone."""

    def __init__(self, cause: Cause, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.cause, self.detail = cause, detail


class RunnerDown(CannotStart):
    """The runner itself does not answer. Its programs may still be running, and the worker should take no new jobs."""


@dataclass(slots=True)
class Launch:
    """Everything needed to run an attempt's program. `folder` belongs to the attempt, and contains `workspace`.

    `memory`, `disk` and `tmp_size` are in bytes; `pids` is the highest allowed number of processes.
    """

    attempt: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    workspace: Path
    image: str = ""
    cpus: float = 1.0
    memory: int = 0
    gpus: tuple[str, ...] = ()
    #: The image that the job builds, and where to push it. `credentials` are for the pool's registry.
    build: Build | None = None
    push: PushTarget | None = None
    credentials: str = ""
    #: The image, if the pool has built it. `image_id` is its id once it is on this machine.
    pool_image: PoolImage | None = None
    image_id: str = ""
    pids: int = 1024
    tmp_size: int = 256 << 20
    disk: int = 0
    network: str = "none"
    timeout_seconds: float = 3600.0
    #: The folder of the machine's owner in which the program works, instead of in `workspace`, and whether it may write
    #: there.
    shared: Path | None = None
    shared_write: bool = False
    #: Whether the program runs only while no other program of the machine wants the processor or the disk.
    gives_way: bool = True
    #: Do not start the program after this moment of `leases.clock`, because the lease may have expired then.
    start_by: float = ANY_TIME

    def env_from_now(self) -> dict[str, str]:
        """The environment of a program that starts now: it names the moment at which the time limit ends."""
        return {**self.env, DEADLINE: str(int(time.time() + self.timeout_seconds))}


#: Takes events of programs (`Exited`, `Began`, `Returned`) in order, from a thread of the runner.
Report = Callable[[list[AttemptEvent]], None]


@dataclass(slots=True)
class Host:
    """What a runner reports about the machine: labels, and warnings about limits that cannot be enforced."""

    labels: dict[str, str | bool | int | float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Runner(Protocol):
    """Runs programs, each in the folder of its attempt.

    - `start` returns when the program runs. If it raises `CannotStart`, nothing runs. It starts an attempt at most
      once, however often it is called.
    - The program outlives the worker. A later session finds out with `adopt` what became of it.
    - `Exited` is reported exactly once for each attempt that was started or adopted here. It says how the attempt
      ended, or why nobody knows.
    - Every call has a deadline, even if the engine or the supervisor behind it hangs.
    """

    name: str

    def check(self) -> str:
        """Why this runner cannot run anything now; empty if it can."""

    def describe(self) -> Host: ...

    def prepare(self, launch: Launch) -> None:
        """Do what can be done before the attempt may start: pull the image, create the container."""

    def start(self, launch: Launch) -> None: ...

    def adopt(self, launch: Launch) -> Adopted:
        """Find out what became of an attempt of an earlier session in this boot, and watch it if it still runs."""

    def signal(self, attempt: str, name: str) -> None:
        """Send TERM or KILL to all processes of the attempt. It is not an error if they have ended."""

    def freeze(self, attempt: str) -> None: ...

    def thaw(self, attempt: str) -> None: ...

    def is_frozen(self, attempt: str) -> bool:
        """Whether the program stands still now. An earlier `freeze` has taken effect when this returns."""

    def log(self, launch: Launch) -> Log:
        """The program's output. It stays available after a restart of the worker."""

    def discard(self, attempt: str) -> None:
        """Remove all processes or the container of the attempt. It is not an error if there are none."""

    def cleanup(self, keep: Collection[str]) -> list[str]:
        """Remove this worker's programs whose attempts are not in `keep`, and return those attempts.

        List the programs first, and only then read `keep`: an attempt is added to `keep` before its program starts, and
        programs may start meanwhile.
        """

    def close(self) -> None:
        """Close the runner's connections without touching its programs."""


class ProcessRunner(Runner, Protocol):
    """A runner for short programs: when a program ends, it starts the next one without waiting for the worker."""

    def start_all(self, launches: list[Launch]) -> None:
        """Start each program, as `start` does. If its `start_by` has passed, report `Returned` instead."""

    def follow(self, launches: list[Launch]) -> None:
        """Start each program, and report `Began`, as soon as another program has ended and left enough room.

        If its `start_by` passes first, report `Returned` instead.
        """

    def recall(self, attempt: str) -> None:
        """Give back a program that has not begun, and report `Returned`. A program that has begun continues."""
