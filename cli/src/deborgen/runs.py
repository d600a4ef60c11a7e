"""Runs and jobs for Python: wait for them, read their logs and results, fetch their artifacts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar
from uuid import uuid4

from deborgen import logs, stream
from deborgen.connection import Connection
from deborgen.errors import DeborgenError, JobsCanceled, JobsFailed, SomeJobsFailed, Unreachable, WaitRanOut
from deborgen.results import Results
from deborgen.transfers import Wanted, pull
from deborgen_shared import contract, messages
from deborgen_shared.calls import Call
from deborgen_shared.queries import EventsQuery, RunArtifactsQuery, RunJobsQuery
from deborgen_shared.states import TERMINAL, State

TERMINAL_EVENTS = frozenset(f"job.{state}" for state in TERMINAL)

Folder = str | os.PathLike[str]
Seen = Callable[[int], None]
Data = TypeVar("Data", messages.Run, messages.Job)


class Submitted(Generic[Data]):
    """What a run and a job have in common."""

    noun: ClassVar[str]
    _get: ClassVar[Call[Any]]
    _cancel: ClassVar[Call[messages.CancelAnswer]]

    def __init__(self, connection: Connection, data: Data) -> None:
        self._connection = connection
        self.data: Data = data

    @property
    def state(self) -> str:
        return self.data.state

    @property
    def ended(self) -> bool:
        return State(self.state).terminal

    @property
    def _name(self) -> dict[str, Any]:
        """Its id as the argument of calls and queries: `{"run": 42}`."""
        return {self.noun: self.data.id}

    def refresh(self) -> Self:
        self.data = self._connection.call(self._get, **self._name)
        return self

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Self:
        """Wait until it has ended. Raises WaitRanOut after `timeout` seconds and, with `check`, on failure."""
        deadline = None if timeout is None else time.monotonic() + timeout
        # The first refresh finds out whether there is anything to wait for.
        self.refresh()
        with self.changes() as changes:
            while not self.ended:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise WaitRanOut(f"the wait timed out: {self.noun} {self.data.id} is still {self.state}")
                changes.wait(left)
                if_reachable(self.refresh)
        if check and (failure := self.failure()):
            raise failure
        return self

    def changes(self, on_trouble: Callable[[str], None] = lambda sentence: None) -> stream.ChangeListener:
        """Notices when it may have changed."""
        return stream.ChangeListener(self._connection, EventsQuery(**self._name), on_trouble)

    def failure(self) -> DeborgenError | None:
        """The error for a script if it failed or was canceled; otherwise None."""
        if self.state == State.CANCELED:
            return JobsCanceled(f"{self.noun} {self.data.id} was canceled")
        return JobsFailed(f"{self.noun} {self.data.id} failed") if self.state == State.FAILED else None

    def cancel(self, reason: str = "") -> dict[str, str]:
        """Cancel it. Returns what happened to each job: `canceled`, `cancel_requested` or `already_terminal`."""
        return dict(self._connection.call(self._cancel, messages.Cancel(reason=reason), **self._name).jobs)


class Job(Submitted[messages.Job]):
    """One unit of work. Its attributes are as of the last `refresh()`."""

    noun = "job"
    _get = contract.GET_JOB
    _cancel = contract.CANCEL_JOB

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state}>"

    @property
    def id(self) -> str:
        return self.data.id

    @property
    def params(self) -> Mapping[str, Any]:
        return self.data.params

    @property
    def result(self) -> Mapping[str, Any]:
        """What the job reported; empty when it reported nothing."""
        return self.data.result or {}

    @property
    def worker(self) -> str | None:
        return self.data.worker

    @property
    def reason(self) -> str:
        return self.data.reason

    def detail(self) -> messages.JobDetail:
        """Everything known about it: its spec, its attempts, its artifacts."""
        return self._connection.call(contract.GET_JOB, job=self.id)

    def why(self) -> messages.Why:
        return self._connection.call(contract.WHY, job=self.id)

    def logs(self, attempt: int | None = None) -> str:
        """Its output so far, from the newest attempt unless one is given."""
        return b"".join(self.log_chunks(attempt)).decode("utf-8", "replace")

    def log_chunks(self, attempt: int | None = None, *, follow: bool = False) -> Iterator[bytes]:
        """The bytes of its log. With `follow`, until the attempt ends; a cut connection is resumed without loss."""
        return logs.chunks(self._connection, self.id, attempt, follow=follow)

    def artifacts(self) -> list[messages.ArtifactView]:
        return self._connection.call(contract.LIST_ARTIFACTS, job=self.id).items

    def wanted(self) -> list[Wanted]:
        """All its artifacts."""
        return [Wanted(self.id, each.path, each.sha256, each.size, each.path) for each in self.artifacts()]

    def folder(self) -> str:
        """The default folder of the command `pull`."""
        return f"job-{self.id}"

    def pull(self, into: Folder = ".", *, seen: Seen = lambda count: None) -> list[Path]:
        """Fetch its artifacts into a folder."""
        return pull(self._connection, self.wanted(), Path(into), seen)


class Run(Submitted[messages.Run]):
    """One submission and all its jobs. Its attributes are as of the last `refresh()`."""

    noun = "run"
    _get = contract.GET_RUN
    _cancel = contract.CANCEL_RUN

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.name!r} {self.state}>"

    @property
    def id(self) -> int:
        return self.data.id

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def counts(self) -> dict[str, int]:
        """How many of its jobs are in each state."""
        jobs = self.data.jobs
        return {str(state): int(getattr(jobs, state)) for state in State}

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        """How many of its jobs have ended."""
        return sum(self.counts[state] for state in TERMINAL)

    @property
    def warnings(self) -> list[str]:
        return self.data.warnings

    def jobs(self, state: str | None = None, limit: int | None = None) -> Iterator[Job]:
        query = RunJobsQuery(state=State(state) if state else None)
        for job in self._connection.items(contract.LIST_RUN_JOBS, query, limit, run=self.id):
            yield Job(self._connection, job)

    def failure(self) -> DeborgenError | None:
        """The error for a script if it failed or was canceled; otherwise None."""
        if self.state != State.FAILED:
            return super().failure()
        counts = self.counts
        text = f"{counts[State.FAILED]} of {self.total} jobs of run {self.id} failed"
        if counts[State.SUCCEEDED]:
            return SomeJobsFailed(text)
        return JobsFailed(text if self.total > 1 else f"the job of run {self.id} failed")

    def as_completed(self) -> Iterator[Job]:
        """Its jobs in the order in which they end, each once. Jobs that have already ended come first."""
        seen: set[str] = set()
        for job in self.jobs():
            if job.ended:
                seen.add(job.id)
                yield job
        total = self.refresh().total
        if len(seen) >= total:
            return
        for event in stream.events(self._connection, EventsQuery(run=self.id), 0):
            if event.type not in TERMINAL_EVENTS or event.job is None or event.job in seen:
                continue
            seen.add(event.job)
            yield Job(self._connection, self._connection.call(contract.GET_JOB, job=event.job))
            if len(seen) >= total:
                return

    def results(self) -> Results:
        """The results table, with one row per job. It has `.to_pandas()`, `.to_csv()` and `.best("error")`."""
        return Results.of(self._connection.call(contract.RESULTS, run=self.id).items)

    def logs(self, *, failed: bool = False) -> dict[str, str]:
        """The output of its jobs, by job id."""
        return {job.id: job.logs() for job in self.jobs(state=State.FAILED if failed else None) if job.data.attempts}

    def wanted(self) -> list[Wanted]:
        """All its artifacts. If it has several jobs, each has its own folder, named by the job's index."""
        alone = self.total == 1
        found = []
        for item in self._connection.items(contract.LIST_RUN_ARTIFACTS, RunArtifactsQuery(), run=self.id):
            target = item.path if alone else f"{item.job.partition('.')[2]}/{item.path}"
            found.append(Wanted(item.job, item.path, item.sha256, item.size, target))
        return found

    def folder(self) -> str:
        """The default folder of `pull`."""
        plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in self.name).strip("-")[:60]
        return f"{plain or 'run'}-{self.id}"

    def pull(self, into: Folder | None = None, *, seen: Seen = lambda count: None) -> list[Path]:
        """Fetch all artifacts into a folder, by default `NAME-ID`. Each of several jobs gets its own folder in it."""
        return pull(self._connection, self.wanted(), Path(into or self.folder()), seen)

    def retry(self, only: messages.Retried = State.FAILED.value) -> Run:
        """Run its failed, canceled or all jobs again, as a new run."""
        body = messages.Retry(only=only)
        return Run(self._connection, self._connection.call(contract.RETRY_RUN, body, key=str(uuid4()), run=self.id))


def if_reachable(ask: Callable[[], object], on_trouble: Callable[[str], None] = lambda sentence: None) -> bool:
    """Ask once, and tell whether it worked: an unreachable coordinator is no reason to stop waiting for a job."""
    try:
        ask()
    except Unreachable as trouble:
        on_trouble(trouble.message)
        return False
    return True
