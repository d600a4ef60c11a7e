"""Adds up what ended attempts used of machines, for the ledger and the charts.

An attempt used the resources that its job asks for, for the seconds that it ran until its end: those that its worker
reported, but never more than have passed since its claim. What it used is spread over stretches of time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deborgen_shared.states import Outcome

from ..storage import usage
from ..storage.rows import HeldAttempt
from ..storage.transactions import Tx

if TYPE_CHECKING:
    from deborgen_shared.jobfile.model import JobResources

    from .context import Context

#: The stretches of today and yesterday have this many seconds; older ones are whole days, in UTC.
STRETCH, DAY = 300, 86_400
MINUTE = 60

#: A stretch: its begin and its length.
Key = tuple[int, int, int, int]


def short_since(now: float) -> int:
    """From here on, stretches are short: the beginning of yesterday."""
    return (int(now) // DAY - 1) * DAY


def spread(begin: float, end: float) -> Iterator[tuple[int, int, float]]:
    """The stretches that this time covers: the begin and the length of each, and the seconds in it. The last one is the
    stretch in which it ends, even if it has no seconds in it."""
    short = short_since(end)
    at = begin
    while True:
        length = STRETCH if at >= short else DAY
        first = int(at) // length * length
        if first + length > end:
            yield first, length, end - at
            return
        yield first, length, first + length - at
        at = float(first + length)


class UsageTally:
    """The usage of one unit of work, stored when the unit closes."""

    def __init__(self) -> None:
        self._sums: defaultdict[Key, list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0, 0.0, 0.0])

    def add(self, held: HeldAttempt, asked: JobResources, outcome: Outcome, end: float, seconds: float) -> None:
        """An attempt has ended, after it ran for these seconds."""
        self._count(held, asked, outcome, (end, seconds), 1)

    def take_back(self, held: HeldAttempt, asked: JobResources, outcome: Outcome, end: float, seconds: float) -> None:
        """An attempt that had ended goes on after all."""
        self._count(held, asked, outcome, (end, seconds), -1)

    def _count(
        self, held: HeldAttempt, asked: JobResources, outcome: Outcome, ran: tuple[float, float], sign: int
    ) -> None:
        end, seconds = ran
        used = min(max(0.0, seconds), max(0.0, end - held.claimed_at))
        last: Key | None = None
        for begin, length, part in spread(end - used, end):
            last = (begin, length, held.worker_id, held.submitter_id)
            sums = self._sums[last]
            part *= sign
            sums[2] += part
            sums[3] += part * asked.cpus
            sums[4] += part * asked.gpus
            sums[5] += part * asked.memory
        assert last is not None
        if outcome is not Outcome.RELEASED:
            self._sums[last][0] += sign
            self._sums[last][1] += sign * (outcome is Outcome.SUCCEEDED)

    def store(self, tx: Tx) -> None:
        if self._sums:
            # In order, so that two coordinators lock the rows in the same order.
            usage.add(tx, [(*key, *sums) for key, sums in sorted(self._sums.items())])


def note_depth(ctx: Context, last: int | None) -> int:
    """Store how deep the queue is, once per minute. Takes the minute of the last time, and returns the current one."""
    minute = int(ctx.clock.wall()) // MINUTE
    if minute != last:
        depth = ctx.store.read(usage.depth_now)
        ctx.store.write(lambda tx: usage.note_depth(tx, minute, depth, keep=minute - DAY // MINUTE))
    return minute


def merge_old(ctx: Context) -> int:
    """Merge some stretches that are older than yesterday into days; return their number."""
    before = short_since(ctx.clock.wall())
    return ctx.store.write(lambda tx: usage.merge(tx, before, STRETCH, DAY))
