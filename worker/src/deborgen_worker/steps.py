"""What can happen to an attempt (events), and what can be done about it (instructions)."""

from __future__ import annotations

from dataclasses import dataclass

from deborgen_shared.states import Outcome
from deborgen_worker.attempts import Ending, Exit, Standing, Stop

# What happens to one attempt.


@dataclass(slots=True)
class Event:
    name: str


@dataclass(slots=True)
class Renewed(Event):
    """A heartbeat that named it was answered: its lease is alive until `start_by`. `sent` is when it was sent."""

    start_by: float
    sent: float


@dataclass(slots=True)
class StopAsked(Event):
    """The coordinator, the owner or the clock wants it ended."""

    ending: Ending
    reason: str = ""


class Prepared(Event):
    """All is ready for its start."""


@dataclass(slots=True)
class NotPrepared(Event):
    """It could not be prepared. `down`: nothing can be prepared now, which is not the attempt's fault."""

    error: str
    down: bool = False


class NotStarted(NotPrepared):
    """It could not be started, and nothing of it runs."""


class Began(Event):
    """Its runner has begun it in the room of another that has ended."""


class Returned(Event):
    """Its runner gives it back: it never began."""


@dataclass(slots=True)
class Exited(Event):
    """Its program is over."""

    exit: Exit


@dataclass(slots=True)
class Adopted(Event):
    """Its runner says what became of it since an earlier session: whether it is frozen, and how long it was, in all."""

    standing: Standing
    frozen: bool = False
    stopped: float = 0.0


class NotThawed(Event):
    """Its program could not be woken: it is still frozen."""


@dataclass(slots=True)
class NotFrozen(Event):
    """Its program could not be frozen."""

    error: str


class Collected(Event):
    """Its result is in the spool."""


class Settled(Event):
    """The coordinator has had the last word: nothing of it is needed any more."""


class Ticked(Event):
    """Time has passed."""


# What is to be done.


@dataclass(slots=True)
class Instruction:
    name: str


@dataclass(slots=True)
class Prepare(Instruction):
    """Lay out the workspace, fetch the image, create the container; then say `Prepared` or `NotPrepared`."""

    gpus: tuple[str, ...] = ()


@dataclass(slots=True)
class Start(Instruction):
    """Start its program before `start_by`; say `NotStarted` if that cannot be done. `began` is now."""

    start_by: float
    began: float
    gpus: tuple[str, ...] = ()


@dataclass(slots=True)
class Follow(Instruction):
    """Let its runner begin it when another program leaves it its room, before `start_by`, or give it back."""

    start_by: float


class Recall(Instruction):
    """Have it back from its runner, unless it has begun."""


@dataclass(slots=True)
class Signal(Instruction):
    """Send TERM or KILL to its program. The journal is told why, if that is new."""

    word: str
    stop: Stop
    thaw: bool = False


class Freeze(Instruction):
    """Stop its program where it is; say `NotFrozen` if that cannot be done."""


class Thaw(Instruction):
    """Let its program go on."""


@dataclass(slots=True)
class Collect(Instruction):
    """Put its result together, write it to the spool, and say `Collected`.

    `seconds` is the time that it used since it began, `stopped` the time that it did not. One that never `ran` has left
    nothing to collect.
    """

    outcome: Outcome
    reason: str
    exit: Exit
    seconds: float
    ran: bool
    began: float
    stopped: float = 0.0


class Send(Instruction):
    """Tell the coordinator how it ended."""


class Forget(Instruction):
    """Nobody wants its result: strike it from the spool."""


@dataclass(slots=True)
class Discard(Instruction):
    """Remove it from its runner, if that may have something of it, and remove its folder unless a new start follows."""

    touched: bool = True
    folder: bool = True


@dataclass(slots=True)
class CloseGate(Instruction):
    """The runner of this attempt does not work: take no new work until it does."""

    error: str


@dataclass(slots=True)
class Say(Instruction):
    """Tell the owner."""

    text: str
