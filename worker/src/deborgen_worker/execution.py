"""What this machine has of an attempt: its program, its folder, its log; and the result that is made of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.messages import Assignment, LogTail, Result
from deborgen_shared.states import Outcome
from deborgen_worker import artifacts, workspace
from deborgen_worker.event_file import EventFile
from deborgen_worker.folders import OWN
from deborgen_worker.logs import CappedLog
from deborgen_worker.runners.protocol import Launch, Runner
from deborgen_worker.spool import Ended
from deborgen_worker.steps import Collect

#: A log whose rest is at most this long goes with the result instead of in a request of its own.
INLINE_BYTES = 48 * 1024


@dataclass
class Execution:
    """All that is needed to carry an attempt out. `log_lock` guards the log while bytes of it are on their way."""

    assignment: Assignment
    spec: JobSpec
    launch: Launch
    runner: Runner
    log_cap: int
    #: Whether its workspace is laid out.
    is_made: bool = False
    #: Whether its owner wants to look at what it left.
    keep: bool = False
    #: The worker's own lines for a log that an earlier session has sealed, until the log is read again.
    notes: bytes | None = None
    log_sent: int = 0
    log_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.id = self.assignment.attempt
        self.log = CappedLog(self.runner.log(self.launch), self.log_cap)
        self.events = EventFile(self.launch.workspace)
        #: Whether there is nothing to fetch before its start.
        self.light = not (self.launch.image or self.spec.files or self.assignment.inputs)

    @property
    def quick(self) -> bool:
        """Whether there is little to collect when it is over: then no thread is needed for that."""
        return self.light and not self.spec.artifacts and not self.events.much_left and not self.log_lock.locked()

    def read_log(self, offset: int, count: int) -> bytes:
        """A part of the log of an attempt that is over. How long that takes may depend on all that it wrote."""
        if self.notes is not None:
            self.log.finish(self.notes)
            self.notes = None
        return self.log.read(offset, count)


def result_of(execution: Execution, end: Collect) -> Ended:
    """Collect what the attempt left, and say how it ended."""
    exit_ = end.exit
    result = Result(attempt=end.name, outcome=end.outcome, reason=end.reason[:2000], exit_code=exit_.code)  # type: ignore[arg-type]
    result.seconds, result.stopped_seconds = end.seconds, end.stopped
    result.cpu_seconds, result.peak_memory, result.image = exit_.cpu_seconds, exit_.peak_memory, exit_.image[:500]
    if end.outcome == Outcome.RELEASED:
        result.exit_code = None
        return Ended(end.name, result, began=end.began)
    notes: list[str] = []
    if end.ran:
        _collect(execution, result, notes)
    result.warnings = [note[:500] for note in notes[:20]]
    if result.outcome not in {Outcome.SUCCEEDED, Outcome.FAILED} and result.reason:
        notes.append(f"the attempt ended as {result.outcome}: {result.reason}")
    text = "".join(f"[deborgen: {note}]\n" for note in notes)
    seal_log(execution, result, text)
    return Ended(end.name, result, text, end.began)


def _collect(execution: Execution, result: Result, notes: list[str]) -> None:
    spec, launch = execution.spec, execution.launch
    with execution.log_lock:
        if note := execution.events.finish():
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


def seal_log(execution: Execution, result: Result, notes: str) -> None:
    """Fix the size of the log, and put what is left of it in the result if it is short."""
    with execution.log_lock:
        size = execution.log.finish(notes.encode())
        result.log_size = size
        left = size - execution.log_sent
        if 0 < left <= INLINE_BYTES:
            result.log = LogTail(offset=execution.log_sent, data=execution.log.read(execution.log_sent, left))
