"""A run and its jobs, as seen from Python: wait for them, read what they wrote, fetch what they made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deborgen import downloads
from deborgen.connection import Connection
from deborgen.errors import DeborgenError, JobsCanceled, JobsFailed, SomeJobsFailed, Unreachable, WaitRanOut
from deborgen.pulse import Pulse
from deborgen.results import Results
from deborgen_shared import contract, messages
from deborgen_shared.queries import EventsQuery, RunArtifactsQuery, RunJobsQuery
from deborgen_shared.states import TERMINAL, State

TERMINAL_EVENTS = frozenset(f"job.{state}" for state in TERMINAL)

Folder = str | os.PathLike[str]
Seen = Callable[[int], None]


def is_terminal(state: str) -> bool:
    return State(state).terminal


class Job:
    """One unit of work. Its attributes are as of the last `refresh()`."""

    def __init__(self, connection: Connection, data: messages.Job) -> None:
        self._connection = connection
        self.data = data

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state}>"

    @property
    def id(self) -> str:
        return self.data.id

    @property
    def state(self) -> str:
        return self.data.state

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

    def refresh(self) -> Job:
        self.data = self.detail()
        return self

    def detail(self) -> messages.JobDetail:
        """All that is known of it: its spec, its attempts, its artifacts."""
        return self._connection.call(contract.GET_JOB, job=self.id)

    def why(self) -> messages.Why:
        return self._connection.call(contract.WHY, job=self.id)

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until it has ended, however it ended; WaitRanOut after `timeout` seconds."""
        _wait(self, EventsQuery(job=self.id), timeout, f"job {self.id}")
        return self

    def logs(self, attempt: int | None = None) -> str:
        """What it wrote so far, of the newest attempt unless one is named."""
        return b"".join(self.log_chunks(attempt)).decode("utf-8", "replace")

    def log_chunks(self, attempt: int | None = None, *, follow: bool = False) -> Iterator[bytes]:
        """The log's bytes. With `follow`, until the attempt ends; a cut line is taken up where it broke."""
        from deborgen import logs

        return logs.chunks(self._connection, self.id, attempt, follow=follow)

    def artifacts(self) -> list[messages.ArtifactView]:
        return self._connection.call(contract.LIST_ARTIFACTS, job=self.id).items

    def pull(self, into: Folder = ".", *, seen: Seen = lambda count: None) -> list[Path]:
        """Fetch its artifacts into a folder."""
        wanted = [downloads.Wanted(self.id, a.path, a.sha256, a.size, a.path) for a in self.artifacts()]
        return downloads.pull(self._connection, wanted, Path(into), seen)

    def cancel(self, reason: str = "") -> dict[str, str]:
        """Ask for its end. Says what that meant: `canceled`, `cancel_requested` or `already_terminal`."""
        answer = self._connection.call(contract.CANCEL_JOB, messages.Cancel(reason=reason), job=self.id)
        return dict(answer.jobs)


class Run:
    """One submission and all its jobs. Its attributes are as of the last `refresh()`."""

    def __init__(self, connection: Connection, data: messages.Run) -> None:
        self._connection = connection
        self.data = data

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.name!r} {self.state}>"

    @property
    def id(self) -> int:
        return self.data.id

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def state(self) -> str:
        return self.data.state

    @property
    def counts(self) -> dict[str, int]:
        """How many of its jobs are in each state."""
        jobs = self.data.jobs
        return {str(state): int(getattr(jobs, state)) for state in State}

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def warnings(self) -> list[str]:
        return self.data.warnings

    def refresh(self) -> Run:
        self.data = self._connection.call(contract.GET_RUN, run=self.id)
        return self

    def jobs(self, state: str | None = None, limit: int | None = None) -> Iterator[Job]:
        query = RunJobsQuery(state=State(state) if state else None)
        for job in self._connection.items(contract.LIST_RUN_JOBS, query, limit, run=self.id):
            yield Job(self._connection, job)

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Run:
        """Wait until all its jobs have ended; WaitRanOut after `timeout` seconds. With `check`, failures raise."""
        _wait(self, EventsQuery(run=self.id), timeout, f"run {self.id}")
        if check and (failure := self.failure()):
            raise failure
        return self

    def failure(self) -> DeborgenError | None:
        """What a script should hear of how it ended, or None when all is well."""
        counts = self.counts
        if self.state == State.FAILED:
            text = f"{counts[State.FAILED]} of {self.total} jobs of run {self.id} failed"
            if counts[State.SUCCEEDED]:
                return SomeJobsFailed(text)
            return JobsFailed(text if self.total > 1 else f"the job of run {self.id} failed")
        return JobsCanceled(f"run {self.id} was canceled") if self.state == State.CANCELED else None

    def as_completed(self) -> Iterator[Job]:
        """Its jobs, each once, as they end; those that have ended already come first."""
        from deborgen import stream

        seen: set[str] = set()
        for job in self.jobs():
            if is_terminal(job.state):
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
        """One row a job. `.to_pandas()` and `.to_csv()` are there; `.best("error")` finds a row."""
        return Results.of(self._connection.call(contract.RESULTS, run=self.id).items)

    def logs(self, *, failed: bool = False) -> dict[str, str]:
        """What its jobs wrote, by job id."""
        return {job.id: job.logs() for job in self.jobs(state=State.FAILED if failed else None) if job.data.attempts}

    def wanted(self) -> list[downloads.Wanted]:
        """All its artifacts. Where it has several jobs, each has a folder of its own, named by its index."""
        alone = self.total == 1
        found = []
        for item in self._connection.items(contract.LIST_RUN_ARTIFACTS, RunArtifactsQuery(), run=self.id):
            target = item.path if alone else f"{item.job.partition('.')[2]}/{item.path}"
            found.append(downloads.Wanted(item.job, item.path, item.sha256, item.size, target))
        return found

    def pull(self, into: Folder | None = None, *, seen: Seen = lambda count: None) -> list[Path]:
        """Fetch all artifacts into a folder, by default `NAME-ID`; a run of several jobs gets a folder a job."""
        return downloads.pull(self._connection, self.wanted(), Path(into or self.folder()), seen)

    def folder(self) -> str:
        """The name of the folder that `pull` takes by default."""
        plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in self.name).strip("-")[:60]
        return f"{plain or 'run'}-{self.id}"

    def cancel(self, reason: str = "") -> dict[str, str]:
        """Ask for the end of all its jobs. Says per job what that meant."""
        answer = self._connection.call(contract.CANCEL_RUN, messages.Cancel(reason=reason), run=self.id)
        return dict(answer.jobs)

    def retry(self, only: messages.Retried = State.FAILED.value) -> Run:
        """A new run of the same jobs."""
        from uuid import uuid4

        body = messages.Retry(only=only)
        return Run(self._connection, self._connection.call(contract.RETRY_RUN, body, key=str(uuid4()), run=self.id))


def patiently(look: Callable[[], object], on_trouble: Callable[[str], None] = lambda sentence: None) -> bool:
    """Look once; whether it worked. A coordinator that is away is no reason to stop waiting for it."""
    try:
        look()
    except Unreachable as trouble:
        on_trouble(trouble.message)
        return False
    return True


def _wait(what: Run | Job, query: EventsQuery, timeout: float | None, name: str) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout
    # The first look finds out whether there is anything to wait for.
    what.refresh()
    with Pulse(what._connection, query) as pulse:
        while not is_terminal(what.state):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise WaitRanOut(f"the wait ran out: {name} is still {what.state}")
            pulse.wait(left)
            patiently(what.refresh)
