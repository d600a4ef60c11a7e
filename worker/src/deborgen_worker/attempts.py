"""An attempt on this machine, as far as decisions need it. Each stage has its own fields and no others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from deborgen_shared.states import Outcome
from deborgen_worker.capacity import Amount


class StopCause(Enum):
    """Why the worker itself ends an attempt."""

    CANCEL = Outcome.CANCELED
    TIMEOUT = Outcome.TIMEOUT
    RELEASE = Outcome.RELEASED
    STALE = "stale"


class Standing(Enum):
    """What a runner knows about an attempt that an earlier session may have started."""

    NEVER_STARTED = "never started"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended. If `error` is set, the program's own end is not known, and `code` means nothing."""

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
    """The worker is ending the attempt. `asked_at` is when it sent the first signal, `killed_at` when it sent KILL."""

    cause: StopCause
    reason: str
    asked_at: float
    killed_at: float | None = None


@dataclass(slots=True)
class Waiting:
    """It waits for room, or for a lease that is certainly alive (until `start_by`, on the clock of `leases`).

    `touched`: a runner may already have something of it. `prepared`: everything is ready for the start. `returned`: a
    runner gave it back without starting it, and it is not left to follow another program again.
    """

    since: float
    start_by: float
    touched: bool = False
    prepared: bool = False
    returned: bool = False


@dataclass(slots=True)
class Preparing:
    """Its room is reserved, and its files and its image are being fetched."""

    since: float
    start_by: float
    gpus: tuple[str, ...] = ()


@dataclass(slots=True)
class Following:
    """It waits with its runner since `handed_over`. The runner starts it when another program ends and leaves room."""

    since: float
    start_by: float
    handed_over: float
    stop: Stop | None = None


@dataclass(slots=True)
class Running:
    """Its program runs.

    `started` is on the clock that stops while the machine sleeps. `began` is the same moment on the clock of `leases`,
    or 0 if it is not known. `reported`: a heartbeat has named it since then. `adoption_pending`: an earlier session
    started it, and its runner has not yet said what became of it.
    """

    started: float
    began: float
    since: float = 0.0
    start_by: float = 0.0
    gpus: tuple[str, ...] = ()
    reported: bool = False
    frozen_at: float | None = None
    frozen_seconds: float = 0.0
    freeze_tries: int = 0
    stop: Stop | None = None
    adoption_pending: bool = False

    def frozen_for(self, now: float) -> float:
        return self.frozen_seconds + (now - self.frozen_at if self.frozen_at is not None else 0.0)

    def used_seconds(self, now: float) -> float:
        """How long the program has run, not counting the time in which the owner had it frozen."""
        return max(0.0, now - self.started - self.frozen_for(now))

    def stopped_seconds(self, now: float, lease_now: float) -> float:
        """How long it did not run since it began: frozen by the owner, or because the machine slept."""
        return max(0.0, lease_now - self.began - self.used_seconds(now)) if self.began else 0.0


@dataclass(slots=True)
class Collecting:
    """Its program has ended, and its result is being put together. The result of a `stale` attempt is thrown away."""

    ended: float
    stale: bool = False


@dataclass(slots=True)
class Done:
    """Its result stays in the spool until the coordinator acknowledges it."""

    ended: float


Stage = Waiting | Preparing | Following | Running | Collecting | Done
STAGES: tuple[type[Stage], ...] = (Waiting, Preparing, Following, Running, Collecting, Done)


@dataclass(slots=True)
class LocalAttempt:
    """One attempt, as far as decisions need it.

    `starts_inline`: nothing has to be fetched before its start, so it needs no thread of its own. `can_follow`: it can
    wait with its runner until another program ends and leaves its room.
    """

    name: str
    amount: Amount
    timeout: float
    stage: Stage
    starts_inline: bool = False
    can_follow: bool = False

    @property
    def on_machine(self) -> bool:
        """Whether something of it may be running, or about to run."""
        return isinstance(self.stage, Preparing | Following | Running)

    @property
    def gpus(self) -> tuple[str, ...]:
        return self.stage.gpus if isinstance(self.stage, Preparing | Running) else ()
