"""What the commands that wait have in common: Ctrl-C detaches, and the exit code says how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deborgen import output
from deborgen.errors import DeborgenError, JobsCanceled, JobsFailed
from deborgen.runs import Job, Run
from deborgen_shared.states import State


class Detached(DeborgenError):
    """The person stopped watching. Nothing was stopped but that."""

    exit_code = 130


@contextmanager
def detachable(what: Run | Job) -> Iterator[None]:
    """Turn an interrupt in the block into a word of farewell that says how to cancel."""
    noun = "run" if isinstance(what, Run) else "job"
    try:
        yield
    except KeyboardInterrupt:
        output.say()
        raise Detached(
            f"detached; {noun} {what.id} goes on",
            f"deborgen watch {what.id} looks again, deborgen cancel {what.id} ends it",
        ) from None


def exit_code(run: Run) -> int:
    failure = run.failure()
    return failure.exit_code if failure else 0


def job_exit_code(job: Job) -> int:
    codes: dict[str, int] = {
        State.SUCCEEDED: 0,
        State.FAILED: JobsFailed.exit_code,
        State.CANCELED: JobsCanceled.exit_code,
    }
    return codes.get(job.state, 1)


def conclude(run: Run) -> int:
    """The last words on a run that has ended: what to type next. The exit code says how it ended."""
    if run.state == State.SUCCEEDED:
        output.hint(f"results: deborgen results {run.id}    files: deborgen artifacts pull {run.id}")
    return exit_code(run)


def report(run: Run) -> int:
    """The exit code, and one sentence when it is not 0."""
    failure = run.failure()
    if failure is None:
        return 0
    output.say(f"error: {failure.message}")
    failed = next(run.jobs(State.FAILED, 1), None)
    if failed:
        output.say(f"  {failed.id}: {failed.reason}")
        output.hint(f"  deborgen why {failed.id}    deborgen logs {run.id} --failed    deborgen retry {run.id}")
    return failure.exit_code
