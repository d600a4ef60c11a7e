"""Whether a worker can run a job, and which job comes first."""

from __future__ import annotations

import fnmatch
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deborgen_shared.jobfile.units import format_size
from deborgen_shared.repositories import GIT, SHARED_PROCESS
from deborgen_shared.states import RunAs

#: For the fair scheduler, every job uses at least this many cpus.
LEAST_CHARGED_CPUS = 0.001


@dataclass(frozen=True, slots=True)
class Amounts:
    """Resources that a job asks for, or that a worker has in total or free. A worker may leave out its disk."""

    cpus: float = 0.0
    memory: int = 0
    gpus: int = 0
    disk: int | None = None

    def minus(self, other: Amounts) -> Amounts:
        disk = None if self.disk is None else self.disk - (other.disk or 0)
        return Amounts(round(self.cpus - other.cpus, 6), self.memory - other.memory, self.gpus - other.gpus, disk)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job needs from a machine. Jobs with the same needs share a class."""

    resources: Amounts
    requires: Mapping[str, str]
    network: str
    runner: RunAs
    #: Names of secrets. They do not depend on the machine, but a job waits while one of them is missing.
    secrets: tuple[str, ...] = ()
    #: What the owner must offer: labels and their values.
    offers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineOffer:
    """What a worker's machine offers."""

    labels: Mapping[str, Any]
    capacity: Amounts


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def lacks(machine: MachineOffer, needs: Needs) -> str:
    """Why this machine can never run such a job with its current offer; empty if it can."""
    for key, wanted in needs.requires.items():
        if key not in machine.labels:
            return f"has no label '{key}', the job requires {key}: {wanted}"
        have = _spell(machine.labels[key])
        if not fnmatch.fnmatchcase(have.lower(), wanted.lower()):
            return f"has {key}: {have}, the job requires {key}: {wanted}"
    if not needs.runner.offered(machine.labels):
        if needs.runner is RunAs.CONTAINER:
            return "cannot run containers, the job has an image"
        if needs.runner is RunAs.BUILD:
            return "builds no images: its owner can allow it, with deborgen-worker run --builds or deborgen up --builds"
        return "does not run plain processes, the job has no image"
    if needs.network != "none" and _spell(machine.labels.get(f"network.{needs.network}", "false")) != "true":
        return (
            "does not give jobs a network, but the job asks for internet: its owner can allow it, "
            "with deborgen-worker run --network internet or deborgen up --network internet"
        )
    for label, wanted in needs.offers.items():
        if reason := _not_offered(machine.labels, label, wanted, needs.runner):
            return reason
    return _short_of(machine.capacity, needs.resources, "in total")


def _not_offered(labels: Mapping[str, Any], label: str, wanted: str, runner: RunAs) -> str:
    """Why the machine's owner does not offer what the label says; empty if they do."""
    kind, _, name = label.partition(".")
    have = _spell(labels.get(label, "false"))
    if kind == GIT:
        if have == wanted:
            return ""
        return f"does not check out repositories over {name}: its owner can allow it, with git_protocols"
    if have not in ("read", "write"):
        return f"shares no folder named '{name}'"
    if wanted == "write" and have != "write":
        return f"shares the folder '{name}' for reading only, but the job writes to it"
    if wanted == "read" and runner is RunAs.PROCESS and _spell(labels.get(SHARED_PROCESS, "false")) != "true":
        return f"cannot keep a plain process from writing to the shared folder '{name}'"
    return ""


def shortage(free: Amounts, needs: Needs) -> str:
    """Why the job does not fit into the free resources at the moment; empty if it fits."""
    return _short_of(free, needs.resources, "free")


def _short_of(have: Amounts, asked: Amounts, word: str) -> str:
    if asked.cpus > have.cpus:
        return f"has {have.cpus:g} cpus {word}, the job asks for {asked.cpus:g}"
    if asked.memory > have.memory:
        return f"has {format_size(have.memory)} of memory {word}, the job asks for {format_size(asked.memory)}"
    if asked.gpus > have.gpus:
        return f"has {have.gpus} gpus {word}, the job asks for {asked.gpus}"
    if have.disk is not None and asked.disk is not None and asked.disk > have.disk:
        return f"has {format_size(have.disk)} of disk {word}, the job asks for {format_size(asked.disk)}"
    return ""


class Head(NamedTuple):
    """The first job of a lane. A lane is the queue of one submitter's ready jobs of one class."""

    rank: int
    job: int
    class_id: int
    submitter: int
    avoid: int


#: Returns the rank and the id of the first jobs of a lane, at most this many.
Fetch = Callable[[Head, int], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a worker asks for: at most this many jobs that fit into the free resources together. With `ahead`, each job
    only has to fit alone."""

    most: int
    free: Amounts
    ahead: bool = False


def choose(
    heads: Iterable[Head],
    wish: Wish,
    *,
    needs_of: Callable[[int], Needs],
    fetch: Fetch,
    used: Mapping[int, float] | None = None,
    allowance: Mapping[int, int] | None = None,
) -> list[tuple[int, Needs]]:
    """The jobs to grant, in order.

    `heads` belong to lanes that this worker may take jobs from. `fetch` is called at most once per lane and returns its
    first jobs; its cost does not depend on the lane's length. With `used` (fair share) the submitter with the least
    usage comes first; without it the order is FIFO within a priority. `allowance` is how many more jobs each submitter
    may have running; a submitter who is not in it has no limit.
    """
    usage = dict(used) if used is not None else None
    left = dict(allowance or {})
    most, free = wish.most, wish.free

    def key(submitter: int, rank: int, job: int) -> tuple[float, int, int]:
        return (usage.get(submitter, 0.0) if usage is not None else 0.0, rank, job)

    #: Each lane with the key of its next job, and with its further jobs once they were fetched.
    lanes: list[tuple[tuple[float, int, int], Head, Iterator[tuple[int, int]] | None]] = [
        (key(head.submitter, head.rank, head.job), head, None) for head in heads
    ]
    heapq.heapify(lanes)
    chosen: list[tuple[int, Needs]] = []
    while lanes and len(chosen) < most:
        order, head, jobs = heapq.heappop(lanes)
        _, rank, job = order
        current = key(head.submitter, rank, job)
        if current != order:  # the submitter was granted a job since this lane was pushed
            heapq.heappush(lanes, (current, head, jobs))
            continue
        needs = needs_of(head.class_id)
        if shortage(free, needs) or left.get(head.submitter, 1) <= 0:
            continue
        if jobs is None:
            jobs = iter(fetch(head, most - len(chosen)))
            first = next(jobs, None)
            if first is None:
                continue
            _, job = first
        chosen.append((job, needs))
        if not wish.ahead:
            free = free.minus(needs.resources)
        if head.submitter in left:
            left[head.submitter] -= 1
        if usage is not None:
            usage[head.submitter] = usage.get(head.submitter, 0.0) + max(needs.resources.cpus, LEAST_CHARGED_CPUS)
        following = next(jobs, None)
        if following is not None:
            heapq.heappush(lanes, (key(head.submitter, *following), head, jobs))
    return chosen
