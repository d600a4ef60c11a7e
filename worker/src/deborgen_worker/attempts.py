"""An attempt on this machine, with the facts on which decisions depend. Each stage has its own fields."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from deborgen_shared.states import Outcome
from deborgen_worker.capacity import Amount


class StopCause(Enum):
    """Why the worker itself ends an attempt."""

    CANCEL = Outcome.CANCELED
    TIMEOUT = Outcome.TIMEOUT
    STALLED = Outcome.STALLED
    DISK = Outcome.FAILED
    RELEASE = Outcome.RELEASED
    STALE = "stale"


#: What a program has written so far, as a value that is another one after each write.
Mark = tuple[int, ...]


class Standing(Enum):
    """What a runner knows about an attempt that an earlier session may have started."""

    NEVER_STARTED = "never started"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended. If `error` is set, nobody knows how the program ended, and `code` means nothing.

    With `out_of_memory` the program needed more memory than its job has. With `shortage` the kernel killed it because
    the whole machine had too little, which is not the program's fault.
    """

    code: int | None = None
    error: str = ""
    cause: str = ""
    out_of_memory: bool = False
    shortage: bool = False
    timed_out: bool = False
    reason: str = ""
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    image: str = ""


@dataclass(slots=True)
class Stop:
    """Why the worker is ending the attempt. `asked_at` is when it sent the first signal, `killed_at` when it sent
    KILL."""

    cause: StopCause
    reason: str
    asked_at: float
    killed_at: float | None = None


@dataclass(slots=True)
class Waiting:
    """The attempt waits for room, or for a heartbeat to renew its lease, which is certainly alive until `start_by` on
    the clock of `leases`.

    `touched` says that the runner may have a container or a process of it, `prepared` that it is ready to start.
    `returned` says that a runner gave it back without starting it: it does not follow another program again.
    """

    since: float
    start_by: float
    touched: bool = False
    prepared: bool = False
    returned: bool = False


@dataclass(slots=True)
class Preparing:
    """The attempt has its room, and its files and its image are being fetched."""

    since: float
    start_by: float
    gpus: tuple[str, ...] = ()


@dataclass(slots=True)
class Following:
    """The attempt has waited with its runner since `handed_over`. The runner starts it when another program ends and
    leaves room."""

    since: float
    start_by: float
    handed_over: float
    stop: Stop | None = None


@dataclass(slots=True)
class Running:
    """The attempt's program runs.

    `started` is on the clock that stops while the machine sleeps. `began` is the same moment on the clock of `leases`,
    or 0 if it is not known. `reported` says that a heartbeat has named the attempt since then. `adoption_pending` says
    that an earlier session started it, and that its runner has not yet said what became of it. `wanted` says that the
    program is frozen and that another machine could run the job, `unfrozen_since` since when it cannot be frozen.
    `saving` says since when a checkpoint is being copied, `saved` how long the program had run when the last one was
    begun, `uploading` that the last one is not at the coordinator yet, and `asked` that the program has asked for one.
    `mark` is what the program had written when somebody last looked, and `active` how long it had run when that last
    changed.
    """

    started: float
    began: float
    since: float = 0.0
    start_by: float = 0.0
    gpus: tuple[str, ...] = ()
    reported: bool = False
    frozen_at: float | None = None
    frozen_seconds: float = 0.0
    unfrozen_since: float | None = None
    wanted: bool = False
    stop: Stop | None = None
    adoption_pending: bool = False
    saving: float | None = None
    saved: float = 0.0
    uploading: bool = False
    asked: bool = False
    mark: Mark | None = None
    active: float = 0.0

    def frozen_for(self, now: float) -> float:
        return self.frozen_seconds + (now - self.frozen_at if self.frozen_at is not None else 0.0)

    def used_seconds(self, now: float) -> float:
        """How long the program has run, not counting the time in which the owner had it frozen."""
        return max(0.0, now - self.started - self.frozen_for(now))

    def stopped_seconds(self, now: float, lease_now: float) -> float:
        """For how many seconds since its start the program did not run: the owner froze it, or the machine slept."""
        return max(0.0, lease_now - self.began - self.used_seconds(now)) if self.began else 0.0


@dataclass(slots=True)
class Collecting:
    """The program has ended, and the result is being put together. The result of a `stale` attempt is thrown away.

    `advanced` is when something of its output was last read, `given_up` whether nobody waits for that any more.
    """

    ended: float
    seconds: float = 0.0
    began: float = 0.0
    stale: bool = False
    advanced: float = 0.0
    given_up: bool = False


@dataclass(slots=True)
class Done:
    """The result is in the spool until the coordinator acknowledges it."""

    ended: float


Stage = Waiting | Preparing | Following | Running | Collecting | Done
STAGES: tuple[type[Stage], ...] = (Waiting, Preparing, Following, Running, Collecting, Done)


@dataclass(slots=True)
class LocalAttempt:
    """One attempt, with the facts on which decisions depend.

    `starts_inline` says that nothing has to be fetched before its start, so no thread is needed. `can_follow` says that
    it can wait with its runner until another program ends and leaves its room. `watchdog` is how many seconds its
    program may run without writing anything; 0 means any time. `every` is after how many seconds a checkpoint is
    saved; 0 means that the job has none. `disk` is how many bytes its workspace may take.
    """

    name: str
    amount: Amount
    timeout: float
    stage: Stage
    starts_inline: bool = False
    can_follow: bool = False
    watchdog: float = 0.0
    every: float = 0.0
    disk: int = 0

    @property
    def on_machine(self) -> bool:
        """Whether the attempt has a program that runs or is about to start."""
        return isinstance(self.stage, Preparing | Following | Running)

    @property
    def gpus(self) -> tuple[str, ...]:
        return self.stage.gpus if isinstance(self.stage, Preparing | Running) else ()
