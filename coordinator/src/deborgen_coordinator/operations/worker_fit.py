"""Which workers could ever run a job. The workers are read at most once per second, so an answer may be a second
old."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping

import msgspec

from deborgen_shared.states import WORKING, WorkerState

from ..clock import Clock
from ..placement import Amounts, MachineOffer, Needs, lacks, shortage
from ..storage import experiences, lease_clock, workers
from ..storage.rows import WorkerRow
from ..storage.store import Store
from .spec_cache import decode_needs

#: Read the workers again after this many seconds.
KEEP_SECONDS = 1.0


def amounts(text: str) -> Amounts:
    data = msgspec.json.decode(text)
    return Amounts(
        float(data.get("cpus", 0)), int(data.get("memory", 0)), int(data.get("gpus", 0)), data.get("disk") or None
    )


def machine(row: WorkerRow) -> MachineOffer:
    return MachineOffer(msgspec.json.decode(row.labels), amounts(row.capacity))


class WorkerFit:
    """Which workers could ever run a job with given needs."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        #: The workers at one moment, and the warnings that were computed for them, by the needs of a job.
        self._machines: list[tuple[WorkerRow, MachineOffer]] = []
        self._warnings: dict[str, str] = {}
        #: Each worker's id with a subject that it fails with, and the lease clock at that moment.
        self._failing: set[tuple[int, str]] = set()
        self._lease_clock = 0.0
        self._until = 0.0

    def warning(self, needs_key: str) -> str:
        """The warning for a person who submits such a job; empty if a worker can run it."""
        with self._lock:
            self._refresh()
            if needs_key not in self._warnings:
                self._warnings[needs_key] = _warning(self._machines, decode_needs(needs_key))
            return self._warnings[needs_key]

    def another_could(self, needs: Needs, than: str, subjects: Collection[str] = ()) -> bool:
        """Whether a worker other than `than` takes jobs and could run such a job, at least once it has room.

        A worker that rests, or that fails with one of the job's `subjects`, could not.
        """
        with self._lock:
            self._refresh()
            return any(self._others(needs, than, subjects))

    def others_have_room(self, jobs: Mapping[str, tuple[Needs, Collection[str]]], than: str) -> list[str]:
        """Those of these jobs that workers other than `than` could run now, all of them together.

        Each job is given by its needs and its subjects, as in `another_could`.
        """
        found = []
        with self._lock:
            self._refresh()
            free: dict[int, Amounts] = {}
            for name, (needs, subjects) in jobs.items():
                for row in self._others(needs, than, subjects):
                    left = free.get(row.id) or amounts(row.free)
                    if not shortage(left, needs):
                        free[row.id] = left.minus(needs.resources)
                        found.append(name)
                        break
        return found

    def _others(self, needs: Needs, than: str, subjects: Collection[str]) -> Iterator[WorkerRow]:
        for row, candidate in self._machines:
            fails = any((row.id, subject) in self._failing for subject in subjects)
            if row.name != than and not fails and self._takes_jobs(row) and not lacks(candidate, needs):
                yield row

    def _takes_jobs(self, row: WorkerRow) -> bool:
        stopped = row.paused or row.drain or row.rest_clock > self._lease_clock
        return row.online and row.state in WORKING and not stopped

    def _refresh(self) -> None:
        now = self._clock.steady()
        if now >= self._until:
            rows, clock, troubles = self._store.read(
                lambda reader: (workers.list_all(reader), lease_clock.read(reader), experiences.troubles(reader))
            )
            self._lease_clock = clock
            self._failing = {(each.worker_id, each.subject) for each in troubles if each.avoid_clock > clock}
            self._machines = [(row, machine(row)) for row in rows if row.state is not WorkerState.LEFT]
            self._warnings, self._until = {}, now + KEEP_SECONDS


def _warning(machines: list[tuple[WorkerRow, MachineOffer]], needs: Needs) -> str:
    if not machines:
        return "no worker has joined yet; the jobs stay queued until one does"
    reasons = []
    for row, candidate in machines:
        reason = lacks(candidate, needs)
        if not reason:
            return ""
        reasons.append(f"{row.name} {reason}")
    more = f" (and {len(reasons) - 3} more)" if len(reasons) > 3 else ""
    return "no worker can run this: " + "; ".join(reasons[:3]) + more
