"""Watches a run or waits for it: Ctrl-C detaches, and the exit code says how the run ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deborgen import logs, output
from deborgen.errors import DeborgenError
from deborgen.runs import Job, Run, if_reachable
from deborgen_shared.states import State


class Detached(DeborgenError):
    """The person stopped watching. The jobs continue."""

    exit_code = 130


@contextmanager
def detachable(what: Run | Job) -> Iterator[None]:
    """Turn an interrupt in the block into a message that says how to watch again and how to cancel."""
    try:
        yield
    except KeyboardInterrupt:
        output.say()
        raise Detached(
            f"detached; {what.noun} {what.data.id} continues",
            f"watch it again: deborgen watch {what.data.id}    cancel it: deborgen cancel {what.data.id}",
        ) from None


def exit_code(what: Run | Job) -> int:
    failure = what.failure()
    return failure.exit_code if failure else 0


def report(run: Run) -> int:
    """Print what failed, if anything did, and return the exit code."""
    failure = run.failure()
    if failure is None:
        return 0
    output.say(f"error: {failure.message}")
    failed = next(run.jobs(State.FAILED, 1), None)
    if failed:
        output.say(f"  {failed.id}: {failed.reason}")
        output.hint(f"  {next_command([failed])}")
    return failure.exit_code


def watch(run: Run) -> int:
    """Show the run until it ends: live on a terminal, otherwise as plain lines. Returns the exit code."""
    run._connection.fail_at_once()
    with detachable(run):
        if output.progress_on_terminal():
            from deborgen import live

            live.watch(run)
        else:
            _watch_plain(run)
    if run.state == State.SUCCEEDED:
        output.hint(f"results: deborgen results {run.id}    files: deborgen artifacts pull {run.id}")
    return exit_code(run)


def _watch_plain(run: Run) -> None:
    """Print a line when something changed, at most one per second, and one for each failed job."""
    reported: set[str] = set()
    before = ""
    with run.changes() as changes:
        while True:
            if_reachable(run.refresh, output.trouble)
            counts = run.counts
            if counts[State.FAILED] > len(reported):
                for job in run.jobs(State.FAILED):
                    if job.id not in reported:
                        reported.add(job.id)
                        output.say(f"{describe(job)} failed: {job.reason}")
                        if len(reported) == 1:
                            for line in last_lines(job):
                                output.say(f"    {line}")
                            output.hint(f"  {next_command([job])}")
            tally = ", ".join(f"{counts[state]:,} {state}" for state in counts if counts[state])
            line = f"run {run.id}: {run.done:,}/{run.total:,} done ({tally})"
            if line != before:
                output.say(line)
            before = line
            if run.ended:
                return
            changes.wait(None, 1.0)


def last_lines(job: Job) -> list[str]:
    """The last lines of a job's log, safe for a terminal; an empty list if it cannot be read."""
    if not job.data.attempts:
        return []
    try:
        return [output.one_line(line) for line in logs.tail(job._connection, job.id)]
    except DeborgenError:
        return []


def next_command(failed: list[Job]) -> str:
    """The commands to type next when jobs have failed."""
    run = failed[0].data.run
    return f"next: deborgen logs {failed[0].id}    deborgen why {failed[0].id}    deborgen retry {run} --failed"


def describe(job: Job) -> str:
    """`42.7 (seed=3)`"""
    named = " ".join(filter(None, [job.data.step, output.cell(job.data.params)]))
    return f"{job.id} ({output.one_line(named)})" if named else job.id
