"""What a run of the fuzzer finds and counts, and how its processes tell each other."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier, Event
from typing import Any, NamedTuple

from fuzz.http_client import Address

_SPAWN = multiprocessing.get_context("spawn")

#: What is counted per source: all requests; answers by kind; requests whose answer did not come, or was not waited for;
#: and job files that were checked without a request.
KINDS = ("requests", "2xx", "3xx", "4xx", "429", "503", "other 5xx", "unanswered", "checks")
#: A source reports at most this many findings of one kind.
OF_A_KIND = 3
#: All sources are ready to begin within this many seconds.
START_SECONDS = 120.0
SHOWN_BYTES = 3000


class Finding(NamedTuple):
    """Something that must not happen: where, what, and the request that made it."""

    source: str
    what: str
    request: bytes = b""

    def shown(self) -> str:
        if not self.request:
            return f"{self.source}: {self.what}"
        more = f" and {len(self.request) - SHOWN_BYTES} bytes more" if len(self.request) > SHOWN_BYTES else ""
        return f"{self.source}: {self.what}\n    {self.request[:SHOWN_BYTES]!r}{more}"


class Counts:
    """The counters of one source. It alone writes them; everybody can read them."""

    def __init__(self) -> None:
        self._numbers = _SPAWN.Array("Q", len(KINDS), lock=False)

    def add(self, kind: str, number: int = 1) -> None:
        self._numbers[KINDS.index(kind)] += number

    def answered(self, status: int) -> None:
        """Count a request and its answer."""
        kind = str(status) if status in (429, 503) else f"{status // 100}xx"
        self.add("requests")
        self.add(kind if kind in KINDS else "other 5xx")

    def get(self, kind: str) -> int:
        return int(self._numbers[KINDS.index(kind)])


@dataclass
class Target:
    """The pool under attack, as the processes of the fuzzer know it."""

    address: Address
    seed: int
    #: A token per role, and those of the workers that the fuzzer plays.
    tokens: dict[str, str]
    worker_tokens: dict[str, str]
    #: What no answer may contain.
    folder: str
    #: How many processes begin together: those that attack, and the one that watches.
    sources: int
    begin: Barrier = field(init=False)
    stop: Event = field(default_factory=_SPAWN.Event)
    counts: dict[str, Counts] = field(default_factory=dict)
    findings: Any = field(default_factory=_SPAWN.Queue)

    def __post_init__(self) -> None:
        self.begin = _SPAWN.Barrier(self.sources, timeout=START_SECONDS)

    def source(self, name: str) -> Source:
        """The part of the source with this name, when all sources are ready to begin."""
        self.begin.wait()
        return Source(self, name)


class Source:
    """One of the processes that send requests: counts them, and reports what is wrong."""

    def __init__(self, target: Target, name: str) -> None:
        self.target, self.name = target, name
        self.counts = target.counts[name]
        self._reported: dict[str, int] = {}

    def goes_on(self) -> bool:
        return not self.target.stop.is_set()

    def found(self, what: str, request: bytes = b"", kind: str = "") -> None:
        """Report a finding. Of one kind, only the first few are reported."""
        kind = kind or what
        self._reported[kind] = self._reported.get(kind, 0) + 1
        if self._reported[kind] <= OF_A_KIND:
            self.target.findings.put(Finding(self.name, what, self.without_tokens(request)))

    def without_tokens(self, request: bytes) -> bytes:
        for name, token in (self.target.tokens | self.target.worker_tokens).items():
            request = request.replace(token.encode(), f"TOKEN-OF-{name}".encode())
        return request


def started(function: Any, *arguments: Any) -> Any:
    """A process that runs the function, and ends when this one does."""
    process = _SPAWN.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def new_queue() -> Any:
    """A queue from the sources to the process that started them."""
    return _SPAWN.Queue()


def drained(queue: Any, seconds: float = 0.0) -> Iterable[Any]:
    """What is in the queue, or comes within this many seconds."""
    end = time.monotonic() + seconds
    while not queue.empty() or time.monotonic() < end:
        if queue.empty():
            time.sleep(0.05)
        else:
            yield queue.get()
