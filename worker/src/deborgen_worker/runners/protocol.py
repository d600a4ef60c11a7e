"""What a runner promises, and what it may rely on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deborgen_worker.logs import Log
from deborgen_worker.steps import Adopted, Event

#: As a moment by which to start a program: later than any.
ANY_TIME = 1e18


class CannotStart(Exception):
    """The program could not be started, for a reason that is not the program's: an infrastructure failure."""


class RunnerDown(CannotStart):
    """The runner itself does not answer. Nothing is known of what it runs; no new work should be taken."""


@dataclass(slots=True)
class Launch:
    """All that is needed to run an attempt's program. `folder` is the attempt's own, `workspace` lies in it."""

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
    #: On the clock of `leases`: after this moment the lease may be over, and the program is not started any more.
    start_by: float = ANY_TIME


#: Tells what became of programs (`Exited`, `Began`, `Returned`), in that order, from a thread of the runner.
Tell = Callable[[list[Event]], None]


@dataclass(slots=True)
class Host:
    """What a runner found out about the machine: labels to show, limits that cannot be enforced, with the reason."""

    labels: dict[str, str | bool | int | float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Runner(Protocol):
    """Runs programs, each in what was made for its attempt.

    - `start` returns when the program runs, or raises `CannotStart`; then nothing runs. It starts an attempt at most
      once, however often it is asked.
    - The program outlives the worker. A later session finds out with `adopt` what became of it.
    - `Exited` is told exactly once of each attempt that was started or adopted here, with the truth or an error.
    - No call takes longer than its own deadline, also when the machinery behind it hangs.
    """

    name: str

    def check(self) -> str:
        """Why this runner cannot run anything now; empty if it can."""

    def describe(self) -> Host: ...

    def prepare(self, launch: Launch) -> None:
        """Do what may be done before the turn of the attempt has come: pull the image, create the container."""

    def start(self, launch: Launch) -> None: ...

    def adopt(self, launch: Launch) -> Adopted:
        """Find out what became of an attempt of an earlier session in this boot, and watch it if it is there."""

    def signal(self, attempt: str, name: str) -> None:
        """Send TERM or KILL to everything that the attempt runs. An attempt that is over is no error."""

    def freeze(self, attempt: str) -> None: ...

    def thaw(self, attempt: str) -> None: ...

    def log(self, launch: Launch) -> Log:
        """The program's output, also after a restart of the worker."""

    def discard(self, attempt: str) -> None:
        """Nothing of the attempt is left after this: no process, no container. What is gone already is no error."""

    def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove everything that carries this worker's mark and is not in `keep`; never anything else.

        First it is found, then `keep` is asked: what is put there before it is started may be put there meanwhile.
        """

    def close(self) -> None:
        """Let go of the runner without touching what it runs."""


class ProcessRunner(Runner, Protocol):
    """A runner of programs that may be so short that one must follow the other without a word from the worker."""

    def start_all(self, launches: list[Launch]) -> None:
        """Start each, as `start` does. One whose moment is over by then is not started, but `Returned`."""

    def follow(self, launches: list[Launch]) -> None:
        """Begin each as soon as a program that runs here has ended and leaves it its room, and say so (`Began`).

        One whose moment is over by then is `Returned`.
        """

    def recall(self, attempt: str) -> None:
        """Give back a program that waits for the room of another (`Returned`). One that has begun goes on."""
