"""What can happen to an attempt (events), and what can be done about it (instructions).

In each docstring here, "it" is the attempt. Its id is the field `name`.
"""

from __future__ import annotations

from dataclasses import dataclass

from deborgen_shared.states import Outcome
from deborgen_worker.attempts import Exit, Mark, Standing, Stop, StopCause

# Events of one attempt.


@dataclass(slots=True)
class AttemptEvent:
    name: str


@dataclass(slots=True)
class Renewed(AttemptEvent):
    """A heartbeat, sent at `sent`, renewed its lease: it may now start until `start_by`.

    `wanted` says that the heartbeat called it frozen, and that another machine could run its job.
    """

    start_by: float
    sent: float
    wanted: bool = False


@dataclass(slots=True)
class StopAsked(AttemptEvent):
    """The coordinator, the owner or the clock wants it ended."""

    cause: StopCause
    reason: str = ""


class Prepared(AttemptEvent):
    """Everything is ready for its start."""


@dataclass(slots=True)
class NotPrepared(AttemptEvent):
    """It could not be prepared. `down` says that its runner does not work at all."""

    error: str
    down: bool = False
    cause: str = ""


class NotStarted(NotPrepared):
    """It could not be started, and nothing of it is running."""


class Began(AttemptEvent):
    """Its runner has started it, after a `Follow`, with the resources of a program that has ended."""


class Returned(AttemptEvent):
    """Its runner gives it back without having started it."""


@dataclass(slots=True)
class Exited(AttemptEvent):
    """Its program has ended."""

    exit: Exit


@dataclass(slots=True)
class Adopted(AttemptEvent):
    """Its runner says what became of it since an earlier session, whether it is `frozen`, and for how many seconds in
    total it was `stopped`."""

    standing: Standing
    frozen: bool = False
    stopped: float = 0.0


class NotThawed(AttemptEvent):
    """Its program could not be woken and is still frozen."""


@dataclass(slots=True)
class NotFrozen(AttemptEvent):
    """Its program could not be frozen."""

    error: str


@dataclass(slots=True)
class Observed(AttemptEvent):
    """Somebody has just looked at what its program has written."""

    mark: Mark


@dataclass(slots=True)
class Measured(AttemptEvent):
    """Its workspace was found to take this many bytes, which is more than it may."""

    used: int


class Frozen(AttemptEvent):
    """Its program was frozen, after a `Freeze`."""


class CheckpointAsked(AttemptEvent):
    """Its program asks for a checkpoint."""


@dataclass(slots=True)
class Copied(AttemptEvent):
    """What its program had saved was copied. If that failed or if there was nothing, the copy is not `complete`."""

    complete: bool


class Uploaded(AttemptEvent):
    """Its last checkpoint is at the coordinator, or was given up."""


class Collected(AttemptEvent):
    """Its result is in the spool."""


class Advanced(AttemptEvent):
    """Its output is still being read, and some of it was read."""


class Settled(AttemptEvent):
    """The coordinator has acknowledged its end, so nothing of it is needed any more."""


class Ticked(AttemptEvent):
    """Time has passed."""


# Instructions.


@dataclass(slots=True)
class Instruction:
    name: str


@dataclass(slots=True)
class Prepare(Instruction):
    """Lay out the workspace, fetch the image, create the container. Leads to `Prepared` or `NotPrepared`."""

    gpus: tuple[str, ...] = ()


@dataclass(slots=True)
class Start(Instruction):
    """Start its program before `start_by`. Leads to `NotStarted` if that fails. `began` is the time now. Both are on
    the clock of `leases`."""

    start_by: float
    began: float
    gpus: tuple[str, ...] = ()


@dataclass(slots=True)
class Follow(Instruction):
    """Let its runner start it when another program ends, before `start_by`, or else give it back."""

    start_by: float


class Recall(Instruction):
    """Take it back from its runner, unless it has begun."""


@dataclass(slots=True)
class Signal(Instruction):
    """Send TERM or KILL to its program; with `thaw`, wake it first. The cause of the first signal is recorded."""

    word: str
    stop: Stop
    thaw: bool = False


class Freeze(Instruction):
    """Freeze its program. Leads to `Frozen`, or to `NotFrozen` if that fails."""


class Thaw(Instruction):
    """Wake its program. Leads to `NotThawed` if that fails."""


@dataclass(slots=True)
class Collect(Instruction):
    """Put its result together and write it to the spool. Leads to `Collected`.

    `seconds` is how long its program ran, `stopped` how long the program was frozen or asleep since it began. If it
    never `ran`, there is nothing to collect.
    """

    outcome: Outcome
    reason: str
    exit: Exit
    seconds: float
    ran: bool
    began: float
    stopped: float = 0.0


class CopyCheckpoint(Instruction):
    """Copy what its program has saved, now that the program is frozen. Leads to `Copied`."""


class Send(Instruction):
    """Send its result to the coordinator."""


class Forget(Instruction):
    """Remove it from the spool: nobody wants its result."""


@dataclass(slots=True)
class Discard(Instruction):
    """With `touched`, remove its container or its processes; with `folder`, also remove its folder."""

    touched: bool = True
    folder: bool = True


@dataclass(slots=True)
class CloseGate(Instruction):
    """Take no new work until this attempt's runner works again."""

    error: str


@dataclass(slots=True)
class Say(Instruction):
    """Print a line for the owner."""

    text: str
