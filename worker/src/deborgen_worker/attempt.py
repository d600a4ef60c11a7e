"""One attempt on this machine: where it stands, and what its end means."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.messages import Assignment, LogTail, Result
from deborgen_shared.states import Outcome
from deborgen_worker import artifacts, workspace
from deborgen_worker.capacity import Amount
from deborgen_worker.event_file import EventFile
from deborgen_worker.folders import OWN
from deborgen_worker.logs import CappedLog
from deborgen_worker.runners.protocol import Exit, LaneRunner, Launch, Runner
from deborgen_worker.spool import Ended

#: A log whose rest is at most this long goes with the result instead of in a request of its own.
INLINE_BYTES = 48 * 1024


class Stage(Enum):
    """How far an attempt is. Nothing goes back, but for a start that provably did not happen.

    `WAITING` is for its turn, for room, or for a lease that is surely alive. `NEXT` is with its runner, which starts it
    when the one before it in its lane is over.
    """

    WAITING = "waiting"
    PREPARING = "preparing"
    NEXT = "next"
    RUNNING = "running"
    COLLECTING = "collecting"
    ENDED = "ended"


class Ending(Enum):
    """Why the worker itself ends an attempt."""

    CANCEL = Outcome.CANCELED
    TIMEOUT = Outcome.TIMEOUT
    RELEASE = Outcome.RELEASED
    STALE = "stale"


@dataclass
class Attempt:
    """What the agent knows of an attempt. Its lock guards the log while bytes of it are on their way.

    `unknown` means that an earlier session started it and its runner has not yet said what became of it.
    """

    assignment: Assignment
    spec: JobSpec
    launch: Launch
    runner: Runner
    amount: Amount
    log_cap: int
    stage: Stage = Stage.WAITING
    waiting_since: float = 0.0
    #: Until when its lease is surely alive, on the clock of `leases`. After that a heartbeat must renew it first.
    start_by: float = 0.0
    #: Whether a heartbeat that named it was answered since it began.
    named: bool = False
    handed_at: float = 0.0
    ahead: bool = False
    gpus: tuple[str, ...] = ()
    started: float = 0.0
    #: When the program began, on the clock of `leases`; 0 if it has not, or that is not known.
    began: float = 0.0
    ended: float = 0.0
    ending: Ending | None = None
    ending_reason: str = ""
    term_at: float | None = None
    killed_at: float | None = None
    frozen_at: float | None = None
    frozen_seconds: float = 0.0
    preparing: bool = False
    #: So many threads prepare or start it. If it is forgotten meanwhile (`keep` is set), the last of them removes it.
    threads: int = 0
    keep: bool | None = None
    prepared: bool = False
    unknown: bool = False
    log_sent: int = 0
    log_lock: threading.Lock = field(default_factory=threading.Lock)
    #: Held while it is prepared, which may take minutes: nobody else waits for it.
    making: threading.Lock = field(default_factory=threading.Lock)
    log: CappedLog = field(init=False)
    #: Guarded by `log_lock` too.
    events: EventFile = field(init=False)
    id: str = field(init=False)
    #: Whether it can be started without waiting for anything: then no thread is needed for it.
    light: bool = field(init=False)
    #: Its runner, if it may wait there in a lane.
    lanes: LaneRunner | None = field(init=False)

    def __post_init__(self) -> None:
        self.log = CappedLog(self.runner.log(self.launch), self.log_cap)
        self.events = EventFile(self.launch.workspace)
        self.id = self.assignment.attempt
        self.light = not (self.launch.image or self.spec.files or self.assignment.inputs)
        waits = self.light and hasattr(self.runner, "start_in_lanes")
        self.lanes = cast("LaneRunner", self.runner) if waits else None

    @property
    def quick(self) -> bool:
        """Whether there is little to collect when it is over: then no thread is needed for that."""
        return not self.started or (self.light and not self.spec.artifacts and not self.events.much_left)

    @property
    def on_machine(self) -> bool:
        """Whether something of it may run."""
        return self.stage in {Stage.PREPARING, Stage.NEXT, Stage.RUNNING}

    def used_seconds(self, now: float) -> float:
        """How long the program has run, without the time in which its owner had it frozen; 0 if it never began."""
        return max(0.0, now - self.started - self.frozen_for(now)) if self.started else 0.0

    def frozen_for(self, now: float) -> float:
        return self.frozen_seconds + (now - self.frozen_at if self.frozen_at is not None else 0.0)


def outcome_of(attempt: Attempt, exit_: Exit, disk_full: str = "") -> tuple[Outcome, str]:
    """What the attempt ended as, and the reason in words. What the worker did to it comes first, then the machinery's
    failures, then the program's own end."""
    match attempt.ending:
        case Ending.CANCEL | Ending.RELEASE:
            return attempt.ending.value, attempt.ending_reason
        case Ending.TIMEOUT:
            return Outcome.TIMEOUT, attempt.ending_reason
    if exit_.error:
        return Outcome.ERROR, exit_.error
    if exit_.timed_out:
        limit = attempt.assignment.timeout_seconds
        return Outcome.TIMEOUT, exit_.reason or f"ran longer than its timeout of {limit:g} s"
    if exit_.out_of_memory:
        return Outcome.OUT_OF_MEMORY, exit_.reason or "the program wanted more memory than the job asks for"
    if exit_.code == 0:
        return Outcome.SUCCEEDED, ""
    return Outcome.FAILED, exit_.reason


def result_of(attempt: Attempt, exit_: Exit, now: float) -> Ended:
    """Collect what the attempt left, and say how it ended."""
    outcome, reason = outcome_of(attempt, exit_)
    notes: list[str] = []
    result = Result(attempt=attempt.id, outcome=outcome, reason=reason[:2000], exit_code=exit_.code)  # type: ignore[arg-type]
    result.seconds = attempt.used_seconds(now)
    if exit_.seconds is not None:
        result.seconds = max(0.0, exit_.seconds - attempt.frozen_for(now))
    result.cpu_seconds, result.peak_memory, result.image = exit_.cpu_seconds, exit_.peak_memory, exit_.image[:500]
    if outcome == Outcome.RELEASED:
        result.exit_code = None
        return Ended(attempt.id, result, began=attempt.began)
    if attempt.started:
        _collect(attempt, result, notes)
    result.warnings = [note[:500] for note in notes[:20]]
    if result.outcome not in {Outcome.SUCCEEDED, Outcome.FAILED} and result.reason:
        notes.append(f"the attempt ended as {result.outcome}: {result.reason}")
    text = "".join(f"[deborgen: {note}]\n" for note in notes)
    seal_log(attempt, result, text)
    return Ended(attempt.id, result, text, attempt.began)


def _collect(attempt: Attempt, result: Result, notes: list[str]) -> None:
    spec, launch = attempt.spec, attempt.launch
    with attempt.log_lock:
        if note := attempt.events.finish():
            notes.append(note)
    if spec.artifacts:
        succeeded = result.outcome == Outcome.SUCCEEDED.value
        found = artifacts.collect(launch.workspace, launch.folder, spec.artifacts, succeeded)
        notes += found.notes
        result.artifacts = found.artifacts
        if found.refused:
            result.outcome, result.reason = Outcome.FAILED.value, found.refused
    path = spec.result or f"{OWN}/result.json"
    data = workspace.read_small(launch.workspace, path, workspace.RESULT_BYTES)
    if data is None and spec.artifacts:
        taken = artifacts.stored(launch.folder).get(path)
        if taken is not None:
            data = workspace.read_small(taken.parent, taken.name, workspace.RESULT_BYTES)
    if data:
        result.result, problem = workspace.parse_result(data)
        if problem:
            notes.append(problem)
    elif spec.result and result.outcome == Outcome.SUCCEEDED.value:
        notes.append(f"the result file {spec.result!r} is not there")


def seal_log(attempt: Attempt, result: Result, notes: str) -> None:
    """Fix the size of the log, and put what is left of it in the result if it is short."""
    with attempt.log_lock:
        size = attempt.log.finish(notes.encode())
        result.log_size = size
        left = size - attempt.log_sent
        if 0 < left <= INLINE_BYTES:
            data = b""
            while len(data) < left:
                piece = attempt.log.read(attempt.log_sent + len(data), left - len(data))
                if not piece:
                    break
                data += piece
            result.log = LogTail(offset=attempt.log_sent, data=data)
