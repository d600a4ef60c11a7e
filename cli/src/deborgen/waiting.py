"""Watches a run or waits for it: Ctrl-C detaches, and the exit code says how the run ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from deborgen import groups, logs, output
from deborgen.errors import DeborgenError
from deborgen.runs import Job, Run, if_reachable
from deborgen_shared.messages import RunOverview
from deborgen_shared.states import State
from deborgen_shared.terminal import inert

#: Without a terminal, `watch` prints at most this many failed jobs one by one.
MOST_REPORTED = 10
#: Without a terminal, `watch` prints at most one line in this many seconds.
LINE_SECONDS = 1.0
#: How often `watch` looks whether an assigned program has begun: the history has no event for that.
ASSIGNED_SECONDS = 2.0


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
        again = "watch" if isinstance(what, Run) else "logs -f"
        raise Detached(
            f"detached; {what.noun} {what.data.id} continues",
            f"watch it again: deborgen {again} {what.data.id}    cancel it: deborgen cancel {what.data.id}",
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
        if run.total == 1:
            output.say(f"  {failed.id}: {failed.reason}")
        else:
            _say_groups(run)
        for line in next_commands(failed):
            output.hint(f"  {line}")
    return failure.exit_code


def _say_groups(run: Run) -> None:
    """Print why jobs failed or wait, and their warnings, each reason once."""
    with contextlib.suppress(DeborgenError):
        for line in groups.described(run.overview()):
            output.say(f"  {line}")


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
        output.hint(f"results: deborgen results {run.id}")
        with contextlib.suppress(DeborgenError):
            if run.has_artifacts():
                output.hint(f"files:   deborgen artifacts pull {run.id}")
    return exit_code(run)


def _watch_plain(run: Run) -> None:
    """Print a line when something changed, at most one per second, and one for each of the first failed jobs.

    At the end, print each reason and each warning once.
    """
    reported: set[str] = set()
    waiting: set[tuple[str, str]] = set()
    before = ""
    with run.changes() as changes:
        while True:
            if_reachable(run.refresh, output.trouble)
            counts = run.counts
            if len(reported) < min(counts[State.FAILED], MOST_REPORTED):
                for job in run.jobs(State.FAILED, MOST_REPORTED):
                    if job.id not in reported:
                        reported.add(job.id)
                        output.say(f"{describe(job)} failed: {job.reason}")
                        if len(reported) == 1:
                            for line in last_lines(job):
                                output.say(f"    {line}")
                            for line in next_commands(job):
                                output.hint(f"  {line}")
            overview = _overview(run)
            tally = ", ".join(f"{count:,} {state}" for state, count in run.tally(overview).items())
            line = f"run {run.id}: {run.done:,}/{run.total:,} done ({tally})"
            if line != before:
                output.say(line)
            before = line
            if run.ended:
                return _say_groups(run)
            for group in overview.waiting if overview else []:
                if (group.reason, group.first) not in waiting:
                    waiting.add((group.reason, group.first))
                    output.say(f"waiting: {groups.line(group)}")
            why = stuck(run, overview) if overview else ""
            if why and (why, "") not in waiting:
                waiting.add((why, ""))
                output.say(why)
            changes.wait(ASSIGNED_SECONDS if overview and overview.assigned else None, LINE_SECONDS)


def _overview(run: Run) -> RunOverview | None:
    with contextlib.suppress(DeborgenError):
        return run.overview()
    return None


def stuck(run: Run, overview: RunOverview) -> str:
    """Why nothing of the run happens, if no worker can run its first queued job; otherwise an empty text."""
    counts = run.counts
    if counts[State.RUNNING] or overview.waiting or not counts[State.QUEUED]:
        return ""
    with contextlib.suppress(DeborgenError):
        for job in run.jobs(State.QUEUED, 1):
            why = job.why()
            if not any(worker.fits for worker in why.workers):
                return f"{job.id}: {inert(why.summary)} Next: deborgen why {run.id}"
    return ""


def last_lines(job: Job) -> list[str]:
    """The last lines of a job's log, safe for a terminal; an empty list if it cannot be read."""
    if not job.data.attempts:
        return []
    try:
        return [inert(line) for line in logs.tail(job._connection, job.id)]
    except DeborgenError:
        return []


def next_commands(failed: Job) -> list[str]:
    """The commands to type next after this job has failed: on one line or, on a narrow terminal, on one line each."""
    commands = [
        f"deborgen {words}" for words in (f"logs {failed.id}", f"why {failed.id}", f"retry {failed.data.run} --failed")
    ]
    line = f"next: {'    '.join(commands)}"
    if output.progress_on_terminal() and len(line) + 2 > output.console(stderr=True).width:
        return [f"next: {commands[0]}", *(f"      {command}" for command in commands[1:])]
    return [line]


def describe(job: Job) -> str:
    """`42.7 (seed=3)`"""
    named = " ".join(filter(None, [job.data.step, output.cell(job.data.params)]))
    return f"{job.id} ({inert(named)})" if named else job.id
