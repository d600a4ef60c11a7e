"""The program, the folder and the log of an attempt, and the result that is made from them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from deborgen_shared.jobfile.images import tagged
from deborgen_shared.jobfile.model import JobSpec
from deborgen_shared.jobfile.template import has_templates, render
from deborgen_shared.messages import Assignment, Built, LogTail, Result
from deborgen_shared.states import Outcome
from deborgen_worker import artifacts, workspace
from deborgen_worker.attempts import Mark
from deborgen_worker.checkpoints import CannotSave, Checkpoints
from deborgen_worker.event_file import EventFile
from deborgen_worker.folders import OWN, owner_of
from deborgen_worker.logs import CappedLog
from deborgen_worker.masking import Mask, MaskedLog, WithheldLog
from deborgen_worker.reasons import without_host_paths
from deborgen_worker.runners.builds import builder
from deborgen_worker.runners.containers import archives
from deborgen_worker.runners.protocol import Launch, Runner
from deborgen_worker.spool import ResultRecord
from deborgen_worker.steps import Collect

#: `git.short_sha` has this many characters.
SHORT_SHA = 7
#: If at most this many bytes of a log are not sent yet, they are sent with the result, not in a separate request.
INLINE_BYTES = 48 * 1024
#: Wait this many seconds for the lock of a log whose bytes are being sent, and of one whose output hangs.
SENDING_SECONDS, STUCK_SECONDS = 600.0, 1.0


@dataclass
class Execution:
    """Everything needed to run an attempt. `log_lock` is held while bytes of the log are being sent."""

    assignment: Assignment
    spec: JobSpec
    launch: Launch
    runner: Runner
    log_cap: int
    #: The values of the job's secrets. They are empty if an earlier session knew them and this one does not.
    secrets: Mapping[str, str] = field(default_factory=dict)
    #: How many bytes a checkpoint must leave free on the disk.
    min_free_disk: int = 0
    workspace_ready: bool = False
    #: Whether the owner wants to keep its folder.
    keep_folder: bool = False
    #: The worker's own lines at the end of the log, only for an attempt that ended in an earlier session. `read_log`
    #: appends them again before it first reads the log.
    notes: bytes | None = None
    #: Whether it has a result. A collection that was given up may end later, and its result is then thrown away.
    has_result: bool = False
    #: What the job last wrote about its progress: a fraction between 0 and 1, and a message.
    progress: tuple[float | None, str] = (None, "")
    #: What was last seen of $DEBORGEN_CHECKPOINT.
    asked: Mark | None = None
    log_sent: int = 0
    log_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.id = self.assignment.attempt
        self.mask = Mask(self.secrets.values())
        self.log = self._make_log()
        self.events = EventFile(self.launch.workspace, self.mask)
        #: Whether there is nothing to fetch before the start, so that no thread is needed for it.
        spec, inputs = self.spec, self.assignment.inputs
        self.starts_inline = not (
            self.launch.image or spec.build or spec.files or inputs or spec.repository or spec.checkpoint
        )
        self.checkpoints: Checkpoints | None = None
        if spec.checkpoint is not None:
            self.checkpoints = Checkpoints(
                self.launch.workspace, self.launch.folder, spec.checkpoint.path, spec.resources.disk,
                self.min_free_disk,
            )  # fmt: skip

    def _make_log(self) -> CappedLog:
        output = self.runner.log(self.launch)
        if self.secrets:
            masked = MaskedLog(output, self.mask)
            return CappedLog(masked, self.log_cap, masked.decided)
        return CappedLog(WithheldLog() if self.spec.secrets else output, self.log_cap)

    def fill_in(self, commit: str) -> None:
        """Fill in what the job looks up about the commit of its repository."""
        if has_templates(self.spec):
            assert self.spec.repository is not None
            facts = {"git.sha": commit, "git.short_sha": commit[:SHORT_SHA], "git.ref": self.spec.repository[1]}
            self.spec = msgspec.convert(render(msgspec.to_builtins(self.spec), {}, facts), JobSpec)
            workspace.set_program(self.launch, self.assignment, self.spec)

    @property
    def collects_inline(self) -> bool:
        """Whether so little has to be collected at the end that no thread is needed for it."""
        return (
            self.starts_inline
            and not self.spec.artifacts
            and not self.events.has_much_unread
            and not self.log_lock.locked()
        )

    def read_log(self, offset: int, count: int) -> bytes:
        """A part of the log of an ended attempt. The first call may take a while, because it may read the whole
        output."""
        if self.notes is not None:
            self.log.finish(self.notes)
            self.notes = None
        return self.log.read(offset, count)


def result_of(execution: Execution, end: Collect, advance: artifacts.Advance = lambda _read: None) -> ResultRecord:
    """Collect the attempt's artifacts, events, result file and log, and make its result."""
    exit_ = end.exit
    reason = execution.mask.apply_to_text(without_host_paths(end.reason, execution.launch))[:2000]
    result = Result(attempt=end.name, outcome=end.outcome, reason=reason, exit_code=exit_.code)  # type: ignore[arg-type]
    result.seconds, result.stopped_seconds = end.seconds, end.stopped
    result.cpu_seconds, result.peak_memory, result.image = exit_.cpu_seconds, exit_.peak_memory, exit_.image[:500]
    if end.outcome == Outcome.ERROR:
        result.cause, result.image = exit_.cause, result.image or execution.launch.image[:500]
    if end.outcome == Outcome.RELEASED:
        result.exit_code = None
        if end.ran and execution.checkpoints is not None:
            try:
                execution.checkpoints.copy()
            except CannotSave as problem:
                result.reason = f"{reason}; its checkpoint could not be saved: {problem}"[:2000]
        return ResultRecord(end.name, result, began=end.began)
    notes: list[str] = []
    if execution.spec.secrets and not execution.secrets:
        notes.append("log withheld: this worker no longer knows the job's secrets, so it could not mask them")
    if end.ran:
        _collect(execution, result, notes, advance)
    notes = [execution.mask.apply_to_text(note) for note in notes]
    result.warnings = [note[:500] for note in notes[:20]]
    if result.outcome not in {Outcome.SUCCEEDED, Outcome.FAILED} and result.reason:
        notes.append(f"the attempt ended with the outcome {result.outcome}: {result.reason}")
    text = "".join(f"[deborgen: {note}]\n" for note in notes)
    seal_log(execution, result, text, SENDING_SECONDS if end.ran else STUCK_SECONDS)
    return ResultRecord(end.name, result, text, end.began)


def _collect(execution: Execution, result: Result, notes: list[str], advance: artifacts.Advance) -> None:
    spec, launch = execution.spec, execution.launch
    if execution.checkpoints is not None:
        notes += execution.checkpoints.warnings
    with execution.log_lock:
        if note := execution.events.finish():
            notes.append(note)
    if spec.artifacts:
        succeeded = result.outcome == Outcome.SUCCEEDED.value
        found = artifacts.collect(launch.workspace, launch.folder, spec.artifacts, succeeded, advance, launch.shared)
        notes += found.notes
        result.artifacts = found.artifacts
        if found.refused:
            result.outcome, result.reason = Outcome.FAILED.value, found.refused
    if spec.build is not None:
        _collect_image(execution, result, notes, advance)
        return
    path = spec.result or f"{OWN}/result.json"
    if launch.shared is not None and spec.result:
        owner = owner_of(launch.workspace)
        data = workspace.read_small(launch.shared, path, workspace.RESULT_BYTES, owner=owner)
    else:
        data = workspace.read_small(launch.workspace, path, workspace.RESULT_BYTES)
    if data is None and spec.artifacts:
        taken = artifacts.stored(launch.folder).get(path)
        if taken is not None:
            data = workspace.read_small(taken.parent, taken.name, workspace.RESULT_BYTES)
    if data is not None:
        result.result, problems = workspace.parse_result(execution.mask.apply(data))
        notes += problems
    elif spec.result and result.outcome == Outcome.SUCCEEDED.value:
        notes.append(f"result left out: there is no file {spec.result!r}")


def _collect_image(execution: Execution, result: Result, notes: list[str], advance: artifacts.Advance) -> None:
    """Describe the image that the job has built. Without a registry, its archive is uploaded like an artifact."""
    folder = execution.launch.folder
    made, commit = builder.outcome_of(str(folder)), workspace.read_commit(folder)
    if commit:  # an earlier session may have checked it out
        execution.fill_in(commit)
    build = execution.spec.build
    if build is None or result.outcome != Outcome.SUCCEEDED.value or "digest" not in made:
        return
    if made.get("warning"):
        notes.append(f"the image was not pushed: {made['warning']}; the pool keeps it in its own store")
    archive = None
    if made.get("archive"):
        taken = artifacts.take_whole(folder, archives.FILE, advance)
        result.artifacts, archive = [taken], taken.sha256
    result.built = Built(
        name=tagged(build.tag), digest=made["digest"], size=made["size"], archive=archive, url=made.get("url"),
        commit=commit, seconds=made["seconds"],
    )  # fmt: skip


def seal_log(execution: Execution, result: Result, notes: str, patience: float) -> None:
    """Fix the size of the log, and put the unsent part into the result if it is short.

    If the log's lock cannot be had for `patience` seconds, the log ends with the bytes that were sent.
    """
    if not execution.log_lock.acquire(timeout=patience):
        result.log_size = execution.log_sent
        return
    try:
        if execution.has_result:
            return
        size = execution.log.finish(notes.encode())
        result.log_size = size
        left = size - execution.log_sent
        if 0 < left <= INLINE_BYTES:
            result.log = LogTail(offset=execution.log_sent, data=execution.log.read(execution.log_sent, left))
    finally:
        execution.log_lock.release()
