"""What a run of the fuzzer has seen, and how it is printed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from fuzz.findings import KINDS, Finding

MIB = 1 << 20


@dataclass
class Report:
    """What a run has seen."""

    seed: int
    seconds: float = 0.0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    heartbeats: list[float] = field(default_factory=list)
    #: The memory of the serving process in bytes: each sample with the number of requests by then.
    memory: list[tuple[int, int]] = field(default_factory=list)
    jobs_run: int = 0

    @property
    def requests(self) -> int:
        return sum(each["requests"] for each in self.counts.values())

    def memory_after(self, share: float) -> int:
        """The memory in bytes when this share of the requests had been sent."""
        return next((size for requests, size in self.memory if requests >= share * self.memory[-1][0]), 0)

    def lines(self) -> Iterable[str]:
        yield f"{'source':12}" + "".join(f"{kind:>12}" for kind in KINDS)
        for name, counts in self.counts.items():
            yield f"{name:12}" + "".join(f"{counts[kind]:>12,}" for kind in KINDS)
        total = {kind: sum(each[kind] for each in self.counts.values()) for kind in KINDS}
        yield f"{'total':12}" + "".join(f"{total[kind]:>12,}" for kind in KINDS)
        rate = self.requests / self.seconds
        yield f"seed {self.seed}: {self.requests:,} requests in {self.seconds:.0f} s, {rate:,.0f} per second"
        if self.heartbeats:
            beats = sorted(self.heartbeats)
            yield (
                f"{len(beats)} heartbeats: median {1000 * statistics.median(beats):.0f} ms, "
                f"99 % within {1000 * beats[int(0.99 * (len(beats) - 1))]:.0f} ms, worst {1000 * beats[-1]:.0f} ms"
            )
        if self.memory:
            sizes = [self.memory[0][1], self.memory_after(0.1), self.memory_after(0.5), self.memory[-1][1]]
            yield "memory: {:.0f} MiB at the start, {:.0f} after a tenth, {:.0f} after half, {:.0f} at the end".format(
                *(size / MIB for size in sizes)
            )
        yield f"jobs that the real worker has run: {self.jobs_run:,}"
        yield f"findings: {len(self.findings)}"
