"""Runs and jobs for Python: wait for them, read their logs and results, fetch their artifacts."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar
from uuid import uuid4

from deborgen import logs, stream
from deborgen.connection import Connection
from deborgen.errors import DeborgenError, JobsCanceled, JobsFailed, SomeJobsFailed, Unreachable, WaitRanOut
from deborgen.results import Results
from deborgen.transfers import ArtifactToFetch, pull
from deborgen_shared import contract, messages
from deborgen_shared.calls import Call
from deborgen_shared.client.blobs import OnBytes
from deborgen_shared.queries import EventsQuery, ResultsQuery, RunArtifactsQuery, RunJobsQuery
from deborgen_shared.results_table import from_wire
from deborgen_shared.states import TERMINAL, State

TERMINAL_EVENTS = frozenset(f"job.{state}" for state in TERMINAL)
FAILED_EVENT = f"job.{State.FAILED}"

#: What people call a running job whose program has not begun yet.
ASSIGNED = "assigned"
#: The states of jobs as people see them, in the order in which their numbers are shown.
SHOWN_STATES = (State.SUCCEEDED, State.RUNNING, ASSIGNED, State.QUEUED, State.FAILED, State.CANCELED)

Folder = str | os.PathLike[str]
Data = TypeVar("Data", messages.Run, messages.Job)


class Interrupted(SystemExit, KeyboardInterrupt):
    """Ctrl-C while a script waited. If the script does not catch a KeyboardInterrupt, it ends without a traceback."""

    def __init__(self) -> None:
        super().__init__(130)


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
    def _by_id(self) -> dict[str, Any]:
        """Its id as an argument for calls and queries: `{"run": 42}`."""
        return {self.noun: self.data.id}

    def refresh(self) -> Self:
        self.data = self._connection.call(self._get, **self._by_id)
        return self

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Self:
        """Wait until it has ended. Raises WaitRanOut after `timeout` seconds.

        With `check`, also raises the error of `failure()` if it failed or was canceled. In a script, Ctrl-C ends the
        program with one sentence that says how to watch it again, unless the script catches KeyboardInterrupt.
        """
        with self._interruptible():
            self.until_ended(timeout)
        if check and (failure := self.failure()):
            failed = self._failed_job()
            raise type(failure)(f"{failure.message}: {failed.story()}") if failed else failure
        return self

    def until_ended(self, timeout: float | None = None) -> Self:
        """Wait until it has ended. Raises WaitRanOut after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        # Raise here if it does not exist, before a listener is started.
        self.refresh()
        with self.changes() as changes:
            while not self.ended:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise WaitRanOut(f"the wait timed out: {self.noun} {self.data.id} is still {self.state}")
                changes.wait(left)
                if_reachable(self.refresh)
        return self

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """In a script, turn an interrupt in the block into a sentence that says how to watch this again."""
        try:
            yield
        except KeyboardInterrupt:
            if hasattr(sys, "ps1"):  # a person types at the interpreter, or in a notebook
                raise
            run = self.data.id if isinstance(self.data, messages.Run) else self.data.run
            what = f"{self.noun} {self.data.id}"
            sys.stderr.write(f"\ninterrupted; {what} continues. Watch it: deborgen watch {run}\n")
            raise Interrupted from None

    def changes(self, on_trouble: Callable[[str], None] = lambda sentence: None) -> stream.ChangeListener:
        """A listener that wakes when this run or job may have changed."""
        return stream.ChangeListener(self._connection, EventsQuery(**self._by_id), on_trouble)

    def failure(self) -> DeborgenError | None:
        """The error to raise, or to exit with, if this run or job failed or was canceled; otherwise None."""
        if self.state == State.CANCELED:
            return JobsCanceled(f"{self.noun} {self.data.id} was canceled")
        return JobsFailed(f"{self.noun} {self.data.id} failed") if self.state == State.FAILED else None

    def _failed_job(self) -> Job | None:
        """Itself if it is a failed job, or the first failed job of a run."""
        return None

    def cancel(self, reason: str = "") -> dict[str, str]:
        """Cancel it. Returns what happened to each job: `canceled`, `cancel_requested` or `already_terminal`."""
        return dict(self._connection.call(self._cancel, messages.Cancel(reason=reason), **self._by_id).jobs)


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
        """The result that the job reported; empty if it reported none. NaN and infinities are floats."""
        return {name: from_wire(value) for name, value in (self.data.result or {}).items()}

    @property
    def warnings(self) -> list[str]:
        """What went wrong without making it fail, for example a result that was left out."""
        return self.data.warnings

    @property
    def worker(self) -> str | None:
        return self.data.worker

    @property
    def reason(self) -> str:
        return self.data.reason

    @property
    def phase(self) -> str | None:
        """In a loop: `work` or `verify`."""
        return self.data.phase

    @property
    def round(self) -> int | None:
        """In a loop: the number of the round."""
        return self.data.round

    @property
    def verified(self) -> bool | None:
        """The answer of a check, once it has given one."""
        return self.data.verified

    @property
    def place(self) -> dict[str, Any]:
        """What tells it apart from other jobs of its run, for people: step, place in a loop, and parameters."""
        data = self.data
        in_loop = {"round": data.round, "phase": data.phase} if data.phase else {}
        return {**({"step": data.step} if data.step else {}), **in_loop, **data.params}

    @property
    def shown_reason(self) -> str:
        """Its reason for people. A check that said no has succeeded, and needs no reason of its own."""
        said_no = self.data.verified is False and self.state == State.SUCCEEDED
        return self.reason or ("not verified" if said_no else "")

    @property
    def shown_state(self) -> str:
        """Its state for people: `assigned` if a worker holds it but has not started its program yet."""
        return ASSIGNED if self.state == State.RUNNING and self.data.began_at is None else self.state

    def _failed_job(self) -> Job | None:
        return self if self.state == State.FAILED else None

    def story(self) -> str:
        """How it failed: the worker, the exit code (or the reason if there is none), and the last lines of its log."""
        data = self.data
        reason = data.reason if data.exit_code is None else f"exit code {data.exit_code}"
        where = f" on {data.worker}" if data.worker else ""
        text = f"{self.id} failed{where}: {reason or 'no reason given'}"
        with contextlib.suppress(DeborgenError):
            lines = logs.tail(self._connection, self.id) if data.attempts else []
            text += "".join(f"\n    {line}" for line in lines)
        return text

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

    def artifacts_to_fetch(self) -> list[ArtifactToFetch]:
        """All its artifacts."""
        return [ArtifactToFetch(self.id, each.path, each.sha256, each.size, each.path) for each in self.artifacts()]

    def folder(self) -> str:
        """The default folder of `deborgen artifacts pull`."""
        return f"job-{self.id}"

    def pull(self, into: Folder = ".", *, on_bytes: OnBytes = lambda count: None) -> list[Path]:
        """Fetch its artifacts into a folder."""
        return pull(self._connection, self.artifacts_to_fetch(), Path(into), on_bytes)


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

    def tally(self, overview: messages.RunOverview | None) -> dict[str, int]:
        """How many of its jobs are in each state, for people: assigned jobs are counted apart from running ones."""
        counts = self.counts
        assigned = min(overview.assigned, counts[State.RUNNING]) if overview else 0
        counts |= {State.RUNNING: counts[State.RUNNING] - assigned, ASSIGNED: assigned}
        return {state: counts[state] for state in SHOWN_STATES if counts[state]}

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

    @property
    def commit(self) -> str | None:
        """The commit that its jobs check out; None without a repository, and until it is known."""
        return self.data.commit

    def source(self) -> str:
        """Where its jobs work, for people: the repository with its commit. Empty if they bring their own files."""
        data = self.data
        if data.workspace_source == "git":
            known = f"commit {data.commit[:12]}" if data.commit else "commit not known yet"
            return f"{data.repo_url} {data.repo_ref}, {known}"
        return "a shared folder" if data.workspace_source == "shared" else ""

    def overview(self) -> messages.RunOverview:
        """Its jobs, grouped by the reasons why they failed or wait, and by their warnings."""
        return self._connection.call(contract.RUN_OVERVIEW, run=self.id)

    def jobs(self, state: str | None = None, limit: int | None = None) -> Iterator[Job]:
        query = RunJobsQuery(state=State(state) if state else None)
        for job in self._connection.items(contract.LIST_RUN_JOBS, query, limit, run=self.id):
            yield Job(self._connection, job)

    def failure(self) -> DeborgenError | None:
        """The error to raise, or to exit with, if this run failed or was canceled; otherwise None."""
        if self.state != State.FAILED:
            return super().failure()
        counts = self.counts
        text = f"{counts[State.FAILED]} of {self.total} jobs of run {self.id} failed"
        if counts[State.SUCCEEDED]:
            return SomeJobsFailed(text)
        return JobsFailed(text if self.total > 1 else f"the job of run {self.id} failed")

    def _failed_job(self) -> Job | None:
        return next(self.jobs(State.FAILED, 1), None) if self.state == State.FAILED else None

    def as_completed(self) -> Iterator[Job]:
        """Its jobs in the order in which they end, each once. Jobs that have already ended come first.

        In a script, Ctrl-C while this waits ends the program with one sentence that says how to watch the run again,
        unless the script catches KeyboardInterrupt.
        """
        with self._interruptible():
            yield from self._as_completed()

    def _as_completed(self) -> Iterator[Job]:
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
                # A loop adds a job in the transaction in which the job before it ends.
                total = self.refresh().total
                if len(seen) >= total:
                    return

    def results(self, *, retries: bool = True) -> Results:
        """The results table, with one row per job. It has `.to_pandas()`, `.to_csv()` and `.best("error")`.

        A job that was retried with success is replaced by its newest successful retry, unless `retries` is false.
        """
        query = ResultsQuery(retries=int(retries))
        return Results.of(self._connection.call(contract.RESULTS, query=query, run=self.id).items)

    def logs(self, *, failed: bool = False) -> dict[str, str]:
        """The output of its jobs, by job id."""
        return {job.id: job.logs() for job in self.jobs(state=State.FAILED if failed else None) if job.data.attempts}

    def has_artifacts(self) -> bool:
        """Whether any of its jobs has left an artifact."""
        found = self._connection.items(contract.LIST_RUN_ARTIFACTS, RunArtifactsQuery(), 1, run=self.id)
        return any(True for _ in found)

    def artifacts_to_fetch(self) -> list[ArtifactToFetch]:
        """All its artifacts. If it has several jobs, each has its own folder, named by the job's index."""
        alone = self.total == 1
        found = []
        for item in self._connection.items(contract.LIST_RUN_ARTIFACTS, RunArtifactsQuery(), run=self.id):
            target = item.path if alone else f"{item.job.partition('.')[2]}/{item.path}"
            found.append(ArtifactToFetch(item.job, item.path, item.sha256, item.size, target))
        return found

    def folder(self) -> str:
        """The default folder of `pull` and of `deborgen artifacts pull`."""
        plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in self.name).strip("-")[:60]
        return f"{plain or 'run'}-{self.id}"

    def pull(self, into: Folder | None = None, *, on_bytes: OnBytes = lambda count: None) -> list[Path]:
        """Fetch all artifacts into a folder, by default `NAME-ID`. If there are several jobs, each gets a subfolder."""
        return pull(self._connection, self.artifacts_to_fetch(), Path(into or self.folder()), on_bytes)

    def retry(
        self, only: messages.Retried = State.FAILED.value, *, rounds: messages.Rounds = messages.FIRST_ROUND
    ) -> Run:
        """Run its failed, canceled or all jobs again, as a new run.

        Loops begin again with the first round or, with `rounds="last"`, go on from the last one whose work succeeded.
        """
        body = messages.Retry(only=only, rounds=rounds)
        return Run(self._connection, self._connection.call(contract.RETRY_RUN, body, key=str(uuid4()), run=self.id))


def if_reachable(ask: Callable[[], object], on_trouble: Callable[[str], None] = lambda sentence: None) -> bool:
    """Ask once; return False if the coordinator is unreachable, which is no reason to stop waiting for a job."""
    try:
        ask()
    except Unreachable as trouble:
        on_trouble(trouble.message)
        return False
    return True
