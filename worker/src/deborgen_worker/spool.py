"""What this worker has promised, on disk: claims asked for, attempts it holds, results nobody has acknowledged yet.

Everything is a record of one journal, so short jobs share their fsyncs. A folder per attempt holds the rest: the
workspace, the output, the artifacts. After a start, `requests` and `entries` are what an earlier session left.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from deborgen_shared.messages import Assignment, Result
from deborgen_worker.crash import point
from deborgen_worker.disk import Disk
from deborgen_worker.folders import Folders
from deborgen_worker.journal import Journal, SpoolFullError

COMPACT_ABOVE = 8 << 20
HISTORY, HISTORY_BYTES = "history.jsonl", 8 << 20


class Record(msgspec.Struct, tag=True, omit_defaults=True):
    """One line of the journal."""


class ClaimAsked(Record, tag="claim"):
    request: str


class ClaimAnswered(Record, tag="answered"):
    request: str
    boot: str
    assignments: list[Assignment]


class Started(Record, tag="start"):
    attempt: str
    runner: str
    at: float
    gpus: list[str] = []
    began: float = 0.0


class Stopped(Record, tag="stop"):
    attempt: str
    ending: str
    reason: str = ""


class Ended(Record, tag="result"):
    """How an attempt ended, the worker's own lines for its log, and when its program began, if that is known."""

    attempt: str
    result: Result
    notes: str = ""
    began: float = 0.0


class Settled(Record, tag="settled"):
    attempt: str
    how: str = ""


_decoder = msgspec.json.Decoder(ClaimAsked | ClaimAnswered | Started | Stopped | Ended | Settled)
_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct):
    """One attempt in the spool. `boot` is the kernel's boot in which it was taken: only there can it still run.

    `started` is the monotonic time of that boot, `began` the same moment on the clock of `leases`. `ending` says that
    the worker itself was ending it, and why.
    """

    assignment: Assignment
    boot: str
    runner: str = ""
    started: float = 0.0
    began: float = 0.0
    gpus: list[str] = []
    ending: str = ""
    reason: str = ""
    result: Result | None = None
    notes: str = ""


class Spool:
    """The journal, the folders of the attempts, and the history that the owner may read."""

    def __init__(self, root: Path, disk: Disk, boot: str) -> None:
        self.root, self._disk, self._boot = root, disk, boot
        self.folders = Folders(root / "attempts", root / "spare")
        self.requests: set[str] = set()
        self.entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        self._compacted = 0
        self._journal = Journal(root / "journal", disk)
        for line in self._journal.records:
            self._replay(_decoder.decode(line))
        self._journal.records.clear()
        self._compact()

    # Writing down: nothing is durable before `commit` has returned.

    def claim_asked(self, request: str) -> None:
        """A claim that is about to be sent; `commit` must come first."""
        point("before-claim-written")
        self._write(ClaimAsked(request))

    def claim_answered(self, request: str, assignments: list[Assignment]) -> None:
        """The answer to a claim.

        It must outlive the worker, but it may be lost with the power: nothing runs after that, and attempts that are
        never named are released.
        """
        point("after-claim-answered")
        self._write(ClaimAnswered(request, self._boot, assignments))
        if assignments:
            point("after-assignment-written")

    def started(self, attempts: Mapping[str, Iterable[str]], runner: str, at: float, began: float) -> None:
        """About to start these, each with its GPUs. It must outlive the worker but not the power: then nothing runs."""
        self._write(*[Started(attempt, runner, at, list(gpus), began) for attempt, gpus in attempts.items()])
        point("after-start-written")

    def stopped(self, attempt: str, ending: str, reason: str) -> None:
        """About to be ended by the worker, so that its exit code is not taken for the program's own. As `started`."""
        self._write(Stopped(attempt, ending, reason))

    def ended(self, *results: Ended) -> None:
        """Results; `commit` must come before they are told, and serves many of them."""
        self._write(*results)
        point("after-result-appended")

    def commit(self) -> None:
        self._journal.commit()

    def settle(self, answers: Mapping[str, str]) -> None:
        """The coordinator has said its word: these are forgotten. Lost on a power cut, it is only said again."""
        with self._lock:
            known = [(self.entries[attempt], how) for attempt, how in answers.items() if attempt in self.entries]
        if not known:
            return
        self._remember(known)
        records = [Settled(entry.assignment.attempt, how) for entry, how in known]
        try:
            self._write(*records)
        except SpoolFullError:  # what they leave must be removed all the same: it may be what fills the disk
            with self._lock:
                for record in records:
                    self._replay(record)
        if self._journal.size > COMPACT_ABOVE + 2 * self._compacted:
            self._compact()
        self._journal.refill_reserve()

    # Looking

    def folder(self, attempt: str) -> Path:
        return self.folders.of(attempt)

    def unsent(self) -> list[str]:
        with self._lock:
            return [attempt for attempt, entry in self.entries.items() if entry.result is not None]

    def began(self, attempt: str) -> float | None:
        """When the program of an attempt began, on the clock of `leases`; None if that was before a reboot."""
        entry = self.entries.get(attempt)
        return entry.began if entry is not None and entry.began and entry.boot == self._boot else None

    def close(self) -> None:
        self._journal.close()

    # Inside

    def _write(self, *records: Record) -> None:
        lines = [_encode(record) for record in records]
        with self._lock:
            self._journal.append(*lines)
            for record in records:
                self._replay(record)

    def _replay(self, record: Record) -> None:
        match record:
            case ClaimAsked(request):
                self.requests.add(request)
            case ClaimAnswered(request, boot, assignments):
                self.requests.discard(request)
                for assignment in assignments:
                    self.entries.setdefault(assignment.attempt, Entry(assignment, boot))
            case Started(attempt, runner, at, gpus, began):
                if attempt in self.entries:
                    entry = self.entries[attempt]
                    entry.runner, entry.started, entry.gpus, entry.began = runner, at, gpus, began
            case Stopped(attempt, ending, reason):
                if attempt in self.entries:
                    self.entries[attempt].ending, self.entries[attempt].reason = ending, reason
            case Ended(attempt, result, notes, began):
                if attempt in self.entries:
                    entry = self.entries[attempt]
                    entry.result, entry.notes, entry.began = result, notes, began or entry.began
            case Settled(attempt):
                self.entries.pop(attempt, None)

    def _compact(self) -> None:
        with self._lock:
            live: list[Record] = [ClaimAsked(request) for request in sorted(self.requests)]
            for attempt, entry in self.entries.items():
                live.append(ClaimAnswered("", entry.boot, [entry.assignment]))
                if entry.runner:
                    live.append(Started(attempt, entry.runner, entry.started, entry.gpus, entry.began))
                if entry.ending:
                    live.append(Stopped(attempt, entry.ending, entry.reason))
                if entry.result is not None:
                    live.append(Ended(attempt, entry.result, entry.notes, entry.began))
            # On a full disk the journal stays as long as it is: a worker must start there to deliver its results.
            with contextlib.suppress(OSError):
                self._journal.rewrite(map(_encode, live))
            self._compacted = self._journal.size

    def _remember(self, settled: Iterable[tuple[Entry, str]]) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        lines = []
        for entry, how in settled:
            result = entry.result
            line = {
                "attempt": entry.assignment.attempt,
                "name": entry.assignment.name,
                "submitter": entry.assignment.submitter,
                "runner": entry.runner,
                "outcome": result.outcome if result else "",
                "seconds": round(result.seconds, 3) if result else 0,
                "answer": how,
                "ended_at": at,
            }
            lines.append(msgspec.json.encode(line) + b"\n")
        path = self.root / HISTORY
        with contextlib.suppress(OSError), self._lock:  # a full disk must not keep a result from being settled
            with open(path, "ab", opener=partial(os.open, mode=0o600)) as file:
                file.writelines(lines)
            if path.stat().st_size > HISTORY_BYTES:
                path.replace(path.with_name("history.old.jsonl"))


def read_history(state: Path, limit: int) -> list[dict[str, Any]]:
    """What ran here, the newest last. A line of which a loss of power has left a part is passed over."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in (state / HISTORY).read_bytes().splitlines()[-limit:]:
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(line, type=dict[str, Any]))
    return found
