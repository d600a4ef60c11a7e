"""What a runner promises, and what it may rely on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from deborgen_worker.logs import Log

#: As a moment by which to start a program: later than any.
ANY_TIME = 1e18


class CannotStart(Exception):
    """The program could not be started, for a reason that is not the program's: an infrastructure failure."""


class RunnerDown(CannotStart):
    """The runner itself does not answer. Nothing is known of what it runs; no new work should be taken."""


class Standing(Enum):
    """What a runner knows of an attempt that an earlier session may have started."""

    NEVER_STARTED = "never started"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended. `error` is set when its end is not known to be its own: then `code` means nothing.

    `recalled` says that it never began: it waited for another one to end, and was called back in time.
    """

    code: int | None = None
    error: str = ""
    out_of_memory: bool = False
    timed_out: bool = False
    reason: str = ""
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    image: str = ""
    recalled: bool = False


#: Called with the programs that ended, in that order, from a thread of the runner. Each comes once.
OnExit = Callable[[list[tuple[str, Exit]]], None]


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
    - `on_exit` is called exactly once for each attempt that was started or adopted here, with the truth or an error.
    - No call takes longer than its own deadline, also when the machinery behind it hangs.
    """

    name: str

    def check(self) -> str:
        """Why this runner cannot run anything now; empty if it can."""

    def describe(self) -> Host: ...

    def prepare(self, launch: Launch) -> None:
        """Do what may be done before the turn of the attempt has come: pull the image, create the container."""

    def start(self, launch: Launch) -> None: ...

    def adopt(self, launch: Launch) -> Standing:
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


class LaneRunner(Runner, Protocol):
    """A runner whose programs may wait in lanes: one begins the moment the one before it in its lane has ended."""

    def start_in_lanes(self, launches: list[tuple[Launch, str, float]]) -> None:
        """Start each in its lane: at once if nothing runs there, else in its turn. What `start` promises holds.

        The last value is the moment, on the clock of `leases`, after which the lease may be over. One whose turn comes
        later is not started, and `on_exit` says that it was recalled.
        """

    def recall(self, attempt: str) -> None:
        """Call back a program that still waits: `on_exit` says so. One that has begun goes on."""
