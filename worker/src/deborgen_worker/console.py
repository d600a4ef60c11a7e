"""The worker's output: for people on a terminal, with a status line that is kept up to date; elsewhere, as plain lines;
or for machines, as one JSON object per line, with the fields that the coordinator's log has.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, TextIO

from deborgen_shared import headers
from deborgen_shared.messages import JOB, NUMBER, Assignment
from deborgen_shared.terminal import inert

#: If the output is not a terminal, repeat an unchanged status after this many seconds.
REPEAT_SECONDS = 300.0

#: The traces of this many attempts are known.
KNOWN_TRACES = 10_000
_ATTEMPT = re.compile(rf"(?<![\w./])({JOB})/{NUMBER}(?![\w./])")


class Console:
    """`say` prints a line that stays. `show` sets the status line.

    If the output is not a terminal, the status is printed when it changes, and otherwise every five minutes.
    """

    def __init__(self, stream: TextIO = sys.stderr, json_for: str = "") -> None:
        """With `json_for`, the name of the worker, the output is JSON."""
        self._stream = stream
        self._json_for = json_for
        self.terminal = stream.isatty() and not json_for
        #: The traces of attempts whose runs belong to one, the newest last.
        self._traces: dict[str, str] = {}
        self._status = ""
        self._printed = ""
        self._printed_at = 0.0
        self._lock = threading.Lock()

    def assigned(self, assignments: Iterable[Assignment]) -> None:
        """In JSON, say that the worker has these attempts, and name their traces whenever they are mentioned."""
        if not self._json_for:
            return
        for each in assignments:
            with self._lock:
                if each.traceparent:
                    self._traces[each.attempt] = each.traceparent
                    if len(self._traces) > KNOWN_TRACES:
                        del self._traces[next(iter(self._traces))]
            self._log(f"{each.attempt} was assigned to this worker")

    def ended(self, attempts: Iterable[str]) -> None:
        """In JSON, say that these attempts have ended."""
        if self._json_for:
            for attempt in attempts:
                self._log(f"{attempt} has ended")

    def _log(self, text: str) -> None:
        """One line of JSON. An attempt that is mentioned is a field too."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        line: dict[str, Any] = {"time": stamp, "level": "info", "logger": "deborgen.worker", "message": text}
        line["worker"] = self._json_for
        if found := _ATTEMPT.search(text):
            attempt, job, run = found[0], found[1], found[1].partition(".")[0]
            line |= {"run": int(run), "job": job, "attempt": attempt, "lease": attempt}
            if attempt in self._traces:
                line[headers.TRACEPARENT] = self._traces[attempt]
        with self._lock:
            self._print(json.dumps(line, ensure_ascii=False) + "\n")

    def say(self, text: str) -> None:
        if self._json_for:
            self._log(text)
            return
        with self._lock:
            self._wipe()
            self._print(f"{time.strftime('%H:%M:%S')} {inert(text)}\n" + (self._status if self.terminal else ""))

    def show(self, text: str) -> None:
        text = inert(text)
        with self._lock:
            if self.terminal:
                self._wipe()
                self._status = text[:200]
                self._print(self._status)
                return
            gist = text.rpartition(";")[0]
            now = time.monotonic()
            if gist == self._printed and now - self._printed_at <= REPEAT_SECONDS:
                return
            self._printed, self._printed_at = gist, now
        self.say(text)

    def end(self) -> None:
        """Leave the terminal clean."""
        with self._lock:
            self._wipe()
            self._status = ""

    def _wipe(self) -> None:
        if self.terminal and self._status:
            self._print("\r\x1b[K")

    def _print(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads the output any more, as after the terminal was closed, but the worker continues
