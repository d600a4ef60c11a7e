"""What a runner promises, and what it may rely on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deborgen_worker.logs import Log
from deborgen_worker.steps import Adopted, AttemptEvent

#: A `start_by` that never passes.
ANY_TIME = 1e18


class CannotStart(Exception):
    """The program could not be started, and it was not the program's fault: an infrastructure failure."""


class RunnerDown(CannotStart):
    """The runner itself does not answer. Nobody knows what it is running, and the worker should take no new jobs."""


@dataclass(slots=True)
class Launch:
    """Everything needed to run an attempt's program. `folder` belongs to the attempt, and contains `workspace`.

    `memory`, `disk` and `tmp_size` are in bytes; `pids` is the most processes that it may have.
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
    pids: int = 1024
    tmp_size: int = 256 << 20
    disk: int = 0
    network: str = "none"
    timeout_seconds: float = 3600.0
    #: Do not start the program after this moment of `leases.clock`, because the lease may have expired then.
    start_by: float = ANY_TIME


#: Takes events of programs (`Exited`, `Began`, `Returned`) in order, from a thread of the runner.
Report = Callable[[list[AttemptEvent]], None]


@dataclass(slots=True)
class Host:
    """What a runner found out about the machine: its labels, and warnings about limits that cannot be enforced."""

    labels: dict[str, str | bool | int | float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Runner(Protocol):
    """Runs programs, each in the folder of its attempt.

    - `start` returns when the program runs. If it raises `CannotStart`, nothing runs. It starts an attempt at most
      once, however often it is called.
    - The program outlives the worker. A later session finds out with `adopt` what became of it.
    - `Exited` is reported exactly once for each attempt that was started or adopted here, with how it
      ended or why nobody knows.
    - Every call has a deadline, even if the machinery behind it hangs.
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
        """Send TERM or KILL to all processes of the attempt. It is not an error if it has ended."""

    def freeze(self, attempt: str) -> None: ...

    def thaw(self, attempt: str) -> None: ...

    def log(self, launch: Launch) -> Log:
        """The program's output. It is available after a restart of the worker, too."""

    def discard(self, attempt: str) -> None:
        """Remove all processes or the container of the attempt. It is not an error if there are none."""

    def cleanup(self, keep: Collection[str]) -> list[str]:
        """Remove this worker's programs whose attempts are not in `keep`, and nothing else. Returns those attempts.

        List the programs first, and only then read `keep`. Programs may start meanwhile, and each attempt is added to
        `keep` before its program starts.
        """

    def close(self) -> None:
        """Close the runner's connections without touching its programs."""


class ProcessRunner(Runner, Protocol):
    """A runner for short programs: it starts the next one itself when one ends, without waiting for the worker."""

    def start_all(self, launches: list[Launch]) -> None:
        """Start each program, as `start` does. If its `start_by` has passed, report `Returned` instead."""

    def follow(self, launches: list[Launch]) -> None:
        """Start each program, and report `Began`, as soon as programs that end leave enough room for it.

        If its `start_by` passes first, report `Returned` instead.
        """

    def recall(self, attempt: str) -> None:
        """Give back a program that has not begun, and report `Returned`. A program that has begun continues."""
