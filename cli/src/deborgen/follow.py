"""Prints logs: of one job, of several jobs one after another, or of a whole run live."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import Queue

from deborgen import logs, output, stream
from deborgen.connection import Connection
from deborgen.errors import DeborgenError
from deborgen.runs import FAILED_EVENT, TERMINAL_EVENTS, Job, Run, if_reachable
from deborgen.waiting import describe
from deborgen_shared.queries import EventsQuery
from deborgen_shared.states import State

#: At most this many logs are followed at the same time; the others wait for their turn.
AT_ONCE = 4
#: A longer line is printed in pieces.
LONGEST_LINE = 64 * 1024


def write(chunks: Iterable[bytes]) -> None:
    """Write a log to stdout: unchanged in a pipe, with visible control characters on a terminal."""
    if not output.on_terminal():
        for chunk in chunks:
            output.write_bytes(chunk)
        return
    inert = output.InertStream()
    for chunk in chunks:
        output.write(inert.feed(chunk))
    output.write(inert.feed(b"", final=True))


def print_log(job: Job, attempt: int | None = None, follow: bool = False) -> None:
    """Print the log of one job. With `follow`, wait until the job has started, and say why it waits."""
    if not job.data.attempts:
        if not follow:
            output.hint(f"job {job.id} has not started. Next: deborgen why {job.id}")
            return
        wait_for_start(job)
    if not job.data.attempts:
        return
    while True:
        number = attempt or job.data.attempts
        write(logs.chunks(job._connection, job.id, number, follow=follow, on_trouble=output.trouble))
        # If the job is retried, continue with its next attempt.
        if not follow or attempt or not _wait_for_next_attempt(job, number):
            return
        output.hint(f"job {job.id} is being retried: attempt {job.data.attempts}")


def _wait_for_next_attempt(job: Job, number: int) -> bool:
    """Wait until the job has ended or has a newer attempt than this one; return whether it has a newer one."""
    with job.changes() as changes:
        if_reachable(job.refresh, output.trouble)
        while not job.ended and job.data.attempts == number:
            changes.wait()
            if_reachable(job.refresh, output.trouble)
    return job.data.attempts > number


def wait_for_start(job: Job) -> None:
    """Wait until the job has started or ended. After a second, say once why it has not started."""
    with job.changes() as changes:
        said = False
        while not job.data.attempts and not job.ended:
            if not changes.wait(1.0) and not said:
                said = if_reachable(lambda: output.hint(f"job {job.id} has not started: {job.why().summary}"))
            if_reachable(job.refresh, output.trouble)


def print_logs_in_turn(run: Run, attempt: int | None, failed: bool) -> int:
    """Print the logs of the run's jobs, each under the name of its job, and return their number."""
    count = 0
    for job in run.jobs(State.FAILED if failed else None):
        if not job.data.attempts:
            continue
        count += 1
        output.say(f"==> {describe(job)} {job.state}{': ' if job.reason else ''}{job.reason} <==")
        print_log(job, attempt)
    return count


def print_logs_live(run: Run, failed: bool = False) -> int:
    """Print all logs of the run live, line by line, each line preceded by its job, and return their number.

    With `failed`, print only the logs of failed jobs, each when its job has failed.
    """
    total = run.refresh().total
    printer = LogPrinter(run._connection)
    ended: set[str] = set()
    for event in stream.events(run._connection, EventsQuery(run=run.id), 0, printer.events_handle, output.trouble):
        if event.attempt and event.type == (FAILED_EVENT if failed else "job.started"):
            printer.add(event.attempt)
        if event.job and event.type in TERMINAL_EVENTS:
            ended.add(event.job)
            if len(ended) >= total:
                break
    count = printer.finish()
    run.refresh()
    return count


class LogPrinter:
    """Prints the logs of several attempts at a time, until all are complete or the output is closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: For the stream of events, which ends once the output is closed.
        self.events_handle = stream.StreamHandle()
        self._waiting: Queue[str | None] = Queue()
        self._added: set[str] = set()
        self._lock = threading.Lock()
        self._failure: OSError | None = None
        # Daemon threads: Ctrl-C must not wait for a silent log.
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(AT_ONCE)]
        for thread in self._threads:
            thread.start()

    def add(self, attempt: str) -> None:
        """Print this log too. A resumed stream of events may announce the same attempt twice."""
        if attempt not in self._added:
            self._added.add(attempt)
            self._waiting.put(attempt)

    def finish(self) -> int:
        """Wait until all logs are printed, and return their number. An error while printing is raised here."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            while self._failure is None and thread.is_alive():
                thread.join(0.2)
        if self._failure is not None:
            raise self._failure
        return len(self._added)

    def _run(self) -> None:
        while attempt := self._waiting.get():
            job, _, number = attempt.partition("/")
            try:
                for lines in whole_lines(logs.chunks(self._connection, job, int(number), follow=True)):
                    self._print(lines, job)
            except DeborgenError as failure:
                output.hint(f"the log of {job} cannot be read: {failure.message}")
            except OSError as failure:  # the reader has closed the pipe
                self._failure = failure
                self.events_handle.hang_up()
                return

    def _print(self, lines: list[bytes], job: str) -> None:
        terminal = output.on_terminal()
        with self._lock:
            for line in lines:
                if terminal:
                    output.write(f"{job} | {output.InertStream().feed(line, final=True)}\n")
                else:
                    output.write_bytes(job.encode() + b" | " + line + b"\n")


def whole_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The complete lines of each chunk. More than LONGEST_LINE bytes without a newline count as a line too."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = b""
        yield lines
    if rest:
        yield [rest]
