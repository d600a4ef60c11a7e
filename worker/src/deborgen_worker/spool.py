"""What must survive on disk: open claims, attempts, and results that are not acknowledged yet.

Everything is a record in one journal, so short jobs share their fsyncs. A folder per attempt holds the rest: the
workspace, the output, the artifacts. After a start, `requests` and `entries` are those of the earlier session.
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
from deborgen_worker.crash import crash_point
from deborgen_worker.disk import Disk
from deborgen_worker.folders import ATTEMPTS, Folders
from deborgen_worker.journal import Journal, SpoolFullError

#: Compact the journal once it is longer than this many bytes plus twice its size after the last compaction.
COMPACT_ABOVE = 8 << 20
#: The file with the history. Once it has more than this many bytes, it is renamed and a new one begins.
HISTORY, HISTORY_BYTES = "history.jsonl", 8 << 20


class Record(msgspec.Struct, tag=True, omit_defaults=True):
    """One record of the journal. Tags and fields are a format on disk: a later release reads them."""


class ClaimRecord(Record, tag="claim"):
    request: str


class AnswerRecord(Record, tag="answered"):
    request: str
    boot: str
    assignments: list[Assignment]


class StartRecord(Record, tag="start"):
    attempt: str
    runner: str
    at: float
    gpus: list[str] = []
    began: float = 0.0


class StopRecord(Record, tag="stop"):
    attempt: str
    ending: str
    reason: str = ""


class ResultRecord(Record, tag="result"):
    """An attempt's result, the worker's own lines for its log, and when its program began, or 0 if unknown."""

    attempt: str
    result: Result
    notes: str = ""
    began: float = 0.0


class SettledRecord(Record, tag="settled"):
    attempt: str
    how: str = ""


_decoder = msgspec.json.Decoder(ClaimRecord | AnswerRecord | StartRecord | StopRecord | ResultRecord | SettledRecord)
_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct):
    """One attempt in the spool. `boot` is the boot in which it was taken. After a reboot its program is gone.

    `started` is the start on that boot's monotonic clock, `began` the same moment on the clock of `leases`. If the
    worker decided to end the attempt, `ending` is the cause and `reason` explains it.
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

    def __init__(self, root: Path, disk: Disk, boot: str, users: range = range(0)) -> None:
        self.root, self._disk, self._boot = root, disk, boot
        self.folders = Folders(root / ATTEMPTS, root / "spare", users)
        self.requests: set[str] = set()
        self.entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        self._compacted = 0
        self._journal = Journal(root / "journal", disk)
        for line in self._journal.records:
            self._apply(_decoder.decode(line))
        self._journal.records.clear()
        self._compact()

    # Writing: nothing is durable before `commit` has returned.

    def claim_asked(self, request: str) -> None:
        """Record a claim. Call `commit` before sending it."""
        crash_point("before-claim-written")
        self._write(ClaimRecord(request))

    def claim_answered(self, request: str, assignments: list[Assignment]) -> None:
        """Record the answer to a claim, without the values of secrets.

        The record must survive a crash of the worker, but not a power cut: after that no program runs, and the
        coordinator releases attempts that no heartbeat names.
        """
        crash_point("after-claim-answered")
        without_secrets = [msgspec.structs.replace(each, secrets={}) if each.secrets else each for each in assignments]
        self._write(AnswerRecord(request, self._boot, without_secrets))
        if assignments:
            crash_point("after-assignment-written")

    def started(self, attempts: Mapping[str, Iterable[str]], runner: str, at: float, began: float) -> None:
        """Record attempts that are about to start, with their GPUs. As in `claim_answered`, a power cut may lose the
        records."""
        self._write(*[StartRecord(attempt, runner, at, list(gpus), began) for attempt, gpus in attempts.items()])
        crash_point("after-start-written")

    def stopped(self, attempt: str, ending: str, reason: str) -> None:
        """Record that the worker is about to end an attempt, so that the program is not blamed for its exit code."""
        self._write(StopRecord(attempt, ending, reason))

    def ended(self, *results: ResultRecord) -> None:
        """Record results. Call `commit` before sending them."""
        self._write(*results)
        crash_point("after-result-appended")

    def commit(self) -> None:
        self._journal.commit()

    def settle(self, answers: Mapping[str, str]) -> None:
        """Forget attempts that the coordinator has acknowledged. If a power cut loses the records, the results are sent
        again."""
        with self._lock:
            known = [(self.entries[attempt], how) for attempt, how in answers.items() if attempt in self.entries]
        if not known:
            return
        self._write_history(known)
        records = [SettledRecord(entry.assignment.attempt, how) for entry, how in known]
        try:
            self._write(*records)
        except SpoolFullError:  # forget them anyway, because their folders may be what fills the disk
            with self._lock:
                for record in records:
                    self._apply(record)
        if self._journal.size > COMPACT_ABOVE + 2 * self._compacted:
            self._compact()
        self._journal.refill_reserve()

    # Reading

    def folder(self, attempt: str) -> Path:
        return self.folders.of(attempt)

    def unsent(self) -> list[str]:
        with self._lock:
            return [attempt for attempt, entry in self.entries.items() if entry.result is not None]

    def began(self, attempt: str) -> float | None:
        """When an attempt's program began, on the clock of `leases`; None if unknown or before a reboot."""
        entry = self.entries.get(attempt)
        return entry.began if entry is not None and entry.began and entry.boot == self._boot else None

    def close(self) -> None:
        self._journal.close()

    # Internals

    def _write(self, *records: Record) -> None:
        lines = [_encode(record) for record in records]
        with self._lock:
            self._journal.append(*lines)
            for record in records:
                self._apply(record)

    def _apply(self, record: Record) -> None:
        match record:
            case ClaimRecord(request):
                self.requests.add(request)
            case AnswerRecord(request, boot, assignments):
                self.requests.discard(request)
                for assignment in assignments:
                    self.entries.setdefault(assignment.attempt, Entry(assignment, boot))
            case StartRecord(attempt, runner, at, gpus, began):
                if attempt in self.entries:
                    entry = self.entries[attempt]
                    entry.runner, entry.started, entry.gpus, entry.began = runner, at, gpus, began
            case StopRecord(attempt, ending, reason):
                if attempt in self.entries:
                    self.entries[attempt].ending, self.entries[attempt].reason = ending, reason
            case ResultRecord(attempt, result, notes, began):
                if attempt in self.entries:
                    entry = self.entries[attempt]
                    entry.result, entry.notes, entry.began = result, notes, began or entry.began
            case SettledRecord(attempt):
                self.entries.pop(attempt, None)

    def _compact(self) -> None:
        with self._lock:
            live: list[Record] = [ClaimRecord(request) for request in sorted(self.requests)]
            for attempt, entry in self.entries.items():
                live.append(AnswerRecord("", entry.boot, [entry.assignment]))
                if entry.runner:
                    live.append(StartRecord(attempt, entry.runner, entry.started, entry.gpus, entry.began))
                if entry.ending:
                    live.append(StopRecord(attempt, entry.ending, entry.reason))
                if entry.result is not None:
                    live.append(ResultRecord(attempt, entry.result, entry.notes, entry.began))
            # If the disk is full, keep the journal as it is: the worker must be able to start and deliver its results.
            with contextlib.suppress(OSError):
                self._journal.rewrite(map(_encode, live))
            self._compacted = self._journal.size

    def _write_history(self, settled: Iterable[tuple[Entry, str]]) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        lines = []
        for entry, how in settled:
            result = entry.result
            line = {
                "attempt": entry.assignment.attempt,
                "name": entry.assignment.name,
                "submitter": entry.assignment.submitter,
                "runner": entry.runner,
                "image": result.image if result else "",
                "outcome": result.outcome if result else "",
                "reason": result.reason if result else "",
                "seconds": round(result.seconds, 3) if result else 0,
                "cpu_seconds": result.cpu_seconds if result else None,
                "peak_memory": result.peak_memory if result else None,
                "bytes_received": _received(entry.assignment),
                "bytes_sent": result.log_size + sum(each.size for each in result.artifacts) if result else 0,
                "answer": how,
                "ended_at": at,
            }
            lines.append(msgspec.json.encode(line) + b"\n")
        path = self.root / HISTORY
        with contextlib.suppress(OSError), self._lock:  # a full disk must not keep attempts from being settled
            with open(path, "ab", opener=partial(os.open, mode=0o600)) as file:
                file.writelines(lines)
            if path.stat().st_size > HISTORY_BYTES:
                path.replace(path.with_name("history.old.jsonl"))


def _received(assignment: Assignment) -> int:
    """The bytes of the job's files. Those that another job had brought before were in the cache, and count too."""
    files = assignment.spec.get("files") or () if isinstance(assignment.spec, dict) else ()
    return sum([*(each.size for each in assignment.inputs), *(int(each.get("size", 0)) for each in files)])


def read_history(state: Path, limit: int) -> list[dict[str, Any]]:
    """The jobs that ran here, the newest last. A line that a power cut has damaged is skipped."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in (state / HISTORY).read_bytes().splitlines()[-limit:]:
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(line, type=dict[str, Any]))
    return found
