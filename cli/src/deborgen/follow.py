"""Logs on the screen: of one job, of several in turn, or of a whole run as it goes."""

from __future__ import annotations

import threading
from queue import Queue

from deborgen import logs, output, stream
from deborgen.errors import DeborgenError
from deborgen.live import describe
from deborgen.pulse import Pulse
from deborgen.runs import TERMINAL_EVENTS, Job, Run, is_terminal, patiently
from deborgen_shared import messages

#: So many logs are followed at once; the others come as places get free.
AT_ONCE = 4


class Printer:
    """Writes a log to stdout: the bytes as they are in a pipe, inert text on a terminal."""

    def __init__(self) -> None:
        self._inert = output.InertStream() if output.on_terminal() else None

    def feed(self, chunk: bytes, final: bool = False) -> None:
        if self._inert:
            output.write(self._inert.feed(chunk, final))
        elif chunk:
            output.write_bytes(chunk)


def one(job: Job, attempt: int | None = None, follow: bool = False) -> None:
    """The log of one job. When it is followed and has not started, wait for that first, and say so."""
    if not job.data.attempts:
        if not follow:
            output.hint(f"job {job.id} has not started. Next: deborgen why {job.id}")
            return
        wait_for_start(job)
    if not job.data.attempts:
        return
    printer = Printer()
    while True:
        number = attempt or job.data.attempts
        for chunk in logs.chunks(job._connection, job.id, number, follow=follow, on_trouble=_trouble):
            printer.feed(chunk)
        printer.feed(b"", final=True)
        # A job that is tried again goes on in its next attempt.
        if not follow or attempt or not _goes_on(job, number):
            return
        output.hint(f"job {job.id} is tried again: attempt {job.data.attempts}")


def _goes_on(job: Job, number: int) -> bool:
    with Pulse(job._connection, {"job": job.id}) as pulse:
        patiently(job.refresh, _trouble)
        while not is_terminal(job.state) and job.data.attempts == number:
            pulse.wait()
            patiently(job.refresh, _trouble)
    return job.data.attempts > number


def wait_for_start(job: Job) -> None:
    with Pulse(job._connection, {"job": job.id}) as pulse:
        said = False
        while not job.data.attempts and not is_terminal(job.state):
            if not pulse.wait(1.0) and not said:
                said = patiently(lambda: output.hint(f"job {job.id} waits: {job.why().summary}"))
            patiently(job.refresh, _trouble)


def one_after_another(run: Run, attempt: int | None, failed: bool) -> int:
    """The logs of the run's jobs, each under its name; how many there were."""
    count = 0
    for job in run.jobs("failed" if failed else None):
        if not job.data.attempts:
            continue
        count += 1
        output.say(f"==> {describe(job)} {job.state}{': ' if job.reason else ''}{job.reason} <==")
        one(job, attempt)
    return count


def all_of(run: Run) -> None:
    """Every log of the run as it is written, line by line, each with its job in front."""
    total = run.refresh().total
    started: set[str] = set()
    ended: set[str] = set()
    # Threads that end with the process: who presses Ctrl-C does not wait for a silent log.
    waiting: Queue[Job | None] = Queue()
    lock = threading.Lock()
    threads = [threading.Thread(target=_print_all, args=(waiting, lock), daemon=True) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for event in stream.events(run._connection, {"run": run.id}, 0, on_trouble=_trouble):
        if event.job and event.type == "job.started" and event.job not in started:
            started.add(event.job)
            waiting.put(Job(run._connection, run._connection.get(f"/v1/jobs/{event.job}", messages.JobDetail)))
        elif event.job and event.type in TERMINAL_EVENTS:
            ended.add(event.job)
            if len(ended) >= total:
                break
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    run.refresh()


def _print_all(waiting: Queue[Job | None], lock: threading.Lock) -> None:
    while job := waiting.get():
        lines = Lines()
        try:
            for chunk in logs.chunks(job._connection, job.id, follow=True):
                _print(lines.feed(chunk), job, lock)
        except DeborgenError as failure:
            output.hint(f"the log of {job.id} cannot be read: {failure.message}")
        _print(lines.rest(), job, lock)


class Lines:
    """Cuts chunks into whole lines; a piece of this size without a line end is a line, too."""

    LONGEST = 64 * 1024

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > self.LONGEST:
            lines.append(self._rest)
            self._rest = b""
        return lines

    def rest(self) -> list[bytes]:
        return [self._rest] if self._rest else []


def _print(lines: list[bytes], job: Job, lock: threading.Lock) -> None:
    terminal = output.on_terminal()
    with lock:
        for line in lines:
            if terminal:
                output.write(f"{job.id} | {output.InertStream().feed(line, final=True)}\n")
            else:
                output.write_bytes(job.id.encode() + b" | " + line + b"\n")


def _trouble(sentence: str) -> None:
    output.hint(f"{sentence}; trying again")
