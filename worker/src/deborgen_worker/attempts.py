"""An attempt on this machine, as far as decisions need it: its stage, with the fields of that stage and no others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from deborgen_shared.states import Outcome
from deborgen_worker.capacity import Amount


class Ending(Enum):
    """Why the worker itself ends an attempt."""

    CANCEL = Outcome.CANCELED
    TIMEOUT = Outcome.TIMEOUT
    RELEASE = Outcome.RELEASED
    STALE = "stale"


class Standing(Enum):
    """What a runner knows of an attempt that an earlier session may have started."""

    NEVER_STARTED = "never started"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended. `error` is set when its end is not known to be its own: then `code` means nothing."""

    code: int | None = None
    error: str = ""
    out_of_memory: bool = False
    timed_out: bool = False
    reason: str = ""
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    image: str = ""


@dataclass(slots=True)
class Stop:
    """The worker ends the attempt. `asked_at` is when it sent the first signal, `killed_at` when it sent KILL."""

    ending: Ending
    reason: str
    asked_at: float
    killed_at: float | None = None


@dataclass(slots=True)
class Waiting:
    """For its turn, for room, or for a lease that is surely alive (until `start_by`, on the clock of `leases`).

    `touched` says that a runner may have something of it already, `prepared` that all is ready for the start, and
    `returned` that a runner had it and did not begin it: it is not left to a runner again.
    """

    since: float
    start_by: float
    touched: bool = False
    prepared: bool = False
    returned: bool = False


@dataclass(slots=True)
class Preparing:
    """It has its room; its files and its image are being fetched."""

    since: float
    start_by: float
    gpus: tuple[str, ...] = ()


@dataclass(slots=True)
class Queued:
    """With its runner since `handed`, which begins it when another program leaves it its room."""

    since: float
    start_by: float
    handed: float
    stop: Stop | None = None


@dataclass(slots=True)
class Running:
    """`started` is on the clock that stops in sleep, `began` the same moment on the clock of `leases`; 0 if that is not
    known. `unknown`: an earlier session started it, and its runner has not yet said what became of it."""

    started: float
    began: float
    since: float = 0.0
    start_by: float = 0.0
    gpus: tuple[str, ...] = ()
    named: bool = False
    frozen_at: float | None = None
    frozen_seconds: float = 0.0
    freeze_tries: int = 0
    stop: Stop | None = None
    unknown: bool = False

    def frozen_for(self, now: float) -> float:
        return self.frozen_seconds + (now - self.frozen_at if self.frozen_at is not None else 0.0)

    def used_seconds(self, now: float) -> float:
        """How long the program has run, without the time in which its owner had it frozen."""
        return max(0.0, now - self.started - self.frozen_for(now))

    def stopped_seconds(self, now: float, lease_now: float) -> float:
        """For how long it was stopped since it began: frozen by its owner, or asleep with the machine."""
        return max(0.0, lease_now - self.began - self.used_seconds(now)) if self.began else 0.0


@dataclass(slots=True)
class Collecting:
    """Its program is over, and its result is being put together. Nobody wants the result of a `stale` attempt."""

    ended: float
    stale: bool = False


@dataclass(slots=True)
class Done:
    """Its result is in the spool, until the coordinator has acknowledged it."""

    ended: float


Stage = Waiting | Preparing | Queued | Running | Collecting | Done
STAGES: tuple[type[Stage], ...] = (Waiting, Preparing, Queued, Running, Collecting, Done)


@dataclass(slots=True)
class Attempt:
    """One attempt, as far as decisions need it. One that is `light` has nothing to fetch before its start; one that
    `follows` can wait with its runner for the room of another."""

    name: str
    amount: Amount
    timeout: float
    stage: Stage
    light: bool = False
    follows: bool = False

    @property
    def on_machine(self) -> bool:
        """Whether something of it may run."""
        return isinstance(self.stage, Preparing | Queued | Running)

    @property
    def gpus(self) -> tuple[str, ...]:
        return self.stage.gpus if isinstance(self.stage, Preparing | Running) else ()
