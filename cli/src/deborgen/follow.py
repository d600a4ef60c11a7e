"""Logs on the screen: of one job, of several in turn, or of a whole run as it goes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import Queue

from deborgen import logs, output, stream
from deborgen.connection import Connection
from deborgen.errors import DeborgenError
from deborgen.runs import TERMINAL_EVENTS, Job, Run, patiently
from deborgen.waiting import describe
from deborgen_shared.queries import EventsQuery
from deborgen_shared.states import State

#: So many logs are followed at once; the others come as places get free.
AT_ONCE = 4
LONGEST_LINE = 64 * 1024


def write(chunks: Iterable[bytes]) -> None:
    """Write a log to stdout: the bytes as they are in a pipe, inert text on a terminal."""
    if not output.on_terminal():
        for chunk in chunks:
            output.write_bytes(chunk)
        return
    inert = output.InertStream()
    for chunk in chunks:
        output.write(inert.feed(chunk))
    output.write(inert.feed(b"", final=True))


def one(job: Job, attempt: int | None = None, follow: bool = False) -> None:
    """The log of one job. When it is followed and has not started, wait for that first, and say so."""
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
        # A job that is tried again goes on in its next attempt.
        if not follow or attempt or not _goes_on(job, number):
            return
        output.hint(f"job {job.id} is tried again: attempt {job.data.attempts}")


def _goes_on(job: Job, number: int) -> bool:
    with job.pulse() as pulse:
        patiently(job.refresh, output.trouble)
        while not job.ended and job.data.attempts == number:
            pulse.wait()
            patiently(job.refresh, output.trouble)
    return job.data.attempts > number


def wait_for_start(job: Job) -> None:
    with job.pulse() as pulse:
        said = False
        while not job.data.attempts and not job.ended:
            if not pulse.wait(1.0) and not said:
                said = patiently(lambda: output.hint(f"job {job.id} waits: {job.why().summary}"))
            patiently(job.refresh, output.trouble)


def one_after_another(run: Run, attempt: int | None, failed: bool) -> int:
    """The logs of the run's jobs, each under its name; how many there were."""
    count = 0
    for job in run.jobs(State.FAILED if failed else None):
        if not job.data.attempts:
            continue
        count += 1
        output.say(f"==> {describe(job)} {job.state}{': ' if job.reason else ''}{job.reason} <==")
        one(job, attempt)
    return count


def all_of(run: Run) -> None:
    """Every log of the run as it is written, line by line, each with its job in front."""
    total = run.refresh().total
    screen = Screen(run._connection)
    ended: set[str] = set()
    for event in stream.events(run._connection, EventsQuery(run=run.id), 0, screen.line, output.trouble):
        if event.attempt and event.type == "job.started":
            screen.add(event.attempt)
        elif event.job and event.type in TERMINAL_EVENTS:
            ended.add(event.job)
            if len(ended) >= total:
                break
    screen.finish()
    run.refresh()


class Screen:
    """Prints the logs of attempts, a few at once, until all are told or nobody reads them any more."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.line = stream.Line()
        self._waiting: Queue[str | None] = Queue()
        self._added: set[str] = set()
        self._lock = threading.Lock()
        self._failure: OSError | None = None
        # Threads that end with the process: who presses Ctrl-C does not wait for a silent log.
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(AT_ONCE)]
        for thread in self._threads:
            thread.start()

    def add(self, attempt: str) -> None:
        """A stream that was taken up again may tell of it twice."""
        if attempt not in self._added:
            self._added.add(attempt)
            self._waiting.put(attempt)

    def finish(self) -> None:
        """Wait until all is told. What kept it from the screen is raised here, in the thread of the command."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            while self._failure is None and thread.is_alive():
                thread.join(0.2)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while attempt := self._waiting.get():
            job, _, number = attempt.partition("/")
            try:
                for lines in whole_lines(logs.chunks(self._connection, job, int(number), follow=True)):
                    self._print(lines, job)
            except DeborgenError as failure:
                output.hint(f"the log of {job} cannot be read: {failure.message}")
            except OSError as failure:  # a closed pipe: whoever read it has seen enough
                self._failure = failure
                return self.line.hang_up()
        return None

    def _print(self, lines: list[bytes], job: str) -> None:
        terminal = output.on_terminal()
        with self._lock:
            for line in lines:
                if terminal:
                    output.write(f"{job} | {output.InertStream().feed(line, final=True)}\n")
                else:
                    output.write_bytes(job.encode() + b" | " + line + b"\n")


def whole_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The whole lines that each chunk brings. A piece of LONGEST_LINE bytes without a line end is a line, too."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = b""
        yield lines
    if rest:
        yield [rest]
