"""What this machine has of an attempt: its program, its folder, its log, and the result that is made from them."""

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
from deborgen_worker.spool import ResultRecord
from deborgen_worker.steps import Collect

#: If at most this many bytes of the log are not sent yet, they go with the result instead of in a request of their own.
INLINE_BYTES = 48 * 1024


@dataclass
class Execution:
    """Everything needed to run an attempt. `log_lock` is held while bytes of the log are being sent."""

    assignment: Assignment
    spec: JobSpec
    launch: Launch
    runner: Runner
    log_cap: int
    workspace_ready: bool = False
    #: Whether the owner wants to keep its folder.
    keep_folder: bool = False
    #: Only for an attempt that ended in an earlier session: the worker's own lines, with which its log ends. `read_log`
    #: appends them again before it first reads the log.
    notes: bytes | None = None
    log_sent: int = 0
    log_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.id = self.assignment.attempt
        self.log = CappedLog(self.runner.log(self.launch), self.log_cap)
        self.events = EventFile(self.launch.workspace)
        #: Whether there is nothing to fetch before the start, so that no thread is needed for it.
        self.starts_inline = not (self.launch.image or self.spec.files or self.assignment.inputs)

    @property
    def collects_inline(self) -> bool:
        """Whether there is so little to collect at its end that no thread is needed for it."""
        return (
            self.starts_inline
            and not self.spec.artifacts
            and not self.events.has_much_unread
            and not self.log_lock.locked()
        )

    def read_log(self, offset: int, count: int) -> bytes:
        """A part of the log of an ended attempt. This may take a while: it may read the whole output."""
        if self.notes is not None:
            self.log.finish(self.notes)
            self.notes = None
        return self.log.read(offset, count)


def result_of(execution: Execution, end: Collect) -> ResultRecord:
    """Collect what the attempt left behind, and make its result."""
    exit_ = end.exit
    result = Result(attempt=end.name, outcome=end.outcome, reason=end.reason[:2000], exit_code=exit_.code)  # type: ignore[arg-type]
    result.seconds, result.stopped_seconds = end.seconds, end.stopped
    result.cpu_seconds, result.peak_memory, result.image = exit_.cpu_seconds, exit_.peak_memory, exit_.image[:500]
    if end.outcome == Outcome.RELEASED:
        result.exit_code = None
        return ResultRecord(end.name, result, began=end.began)
    notes: list[str] = []
    if end.ran:
        _collect(execution, result, notes)
    result.warnings = [note[:500] for note in notes[:20]]
    if result.outcome not in {Outcome.SUCCEEDED, Outcome.FAILED} and result.reason:
        notes.append(f"the attempt ended with the outcome {result.outcome}: {result.reason}")
    text = "".join(f"[deborgen: {note}]\n" for note in notes)
    seal_log(execution, result, text)
    return ResultRecord(end.name, result, text, end.began)


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
        notes.append(f"the result file {spec.result!r} does not exist")


def seal_log(execution: Execution, result: Result, notes: str) -> None:
    """Fix the size of the log, and put its unsent rest into the result if that is short."""
    with execution.log_lock:
        size = execution.log.finish(notes.encode())
        result.log_size = size
        left = size - execution.log_sent
        if 0 < left <= INLINE_BYTES:
            result.log = LogTail(offset=execution.log_sent, data=execution.log.read(execution.log_sent, left))
