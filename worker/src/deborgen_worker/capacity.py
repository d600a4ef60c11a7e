"""The resources that are offered and in use, and how much to claim. Pure arithmetic; the caller holds the lock."""

from __future__ import annotations

from dataclasses import dataclass, field

from deborgen_shared.messages import Resources

#: Prefetch jobs while they are shorter than this on average, so that no slot waits for the network between two jobs.
SHORT_SECONDS = 1.0
#: Prefetch at most this many seconds of work per slot.
PREFETCH_SECONDS = 0.5
#: Prefetch at most this many jobs.
MAX_PREFETCHED_JOBS = 128
#: Prefetch at most this many jobs per short job that has just ended, because the next jobs may not be short.
PREFETCH_PER_SHORT_JOB = 4
#: Jobs shorter than this on average wait with their runner, which starts each one when another job ends.
CHAIN_BELOW_SECONDS = 0.05
#: For this many seconds, smaller jobs may overtake a job that waits for more room. After that the room is kept for it.
OVERTAKE_SECONDS = 4.0
#: Ask for at most this many attempts per claim.
MAX_JOBS_PER_CLAIM = 128


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of each resource."""

    cpus: float = 0.0
    memory: int = 0
    gpus: int = 0
    disk: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            round(self.cpus + other.cpus, 6), self.memory + other.memory, self.gpus + other.gpus, self.disk + other.disk
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            round(self.cpus - other.cpus, 6), self.memory - other.memory, self.gpus - other.gpus, self.disk - other.disk
        )

    def covers(self, other: Amount) -> bool:
        return (
            other.cpus <= self.cpus
            and other.memory <= self.memory
            and other.gpus <= self.gpus
            and other.disk <= self.disk
        )

    @property
    def usable(self) -> bool:
        """Whether there is enough for any job at all."""
        return self.cpus > 0 and self.memory > 0 and self.disk > 0

    def message(self) -> Resources:
        return Resources(
            cpus=max(0.0, self.cpus), memory=max(0, self.memory), gpus=max(0, self.gpus), disk=max(0, self.disk)
        )


class Reservations(dict[str, Amount]):
    """Amounts by name, with a running total, because the total is needed after every job."""

    def __init__(self) -> None:
        super().__init__()
        self.total = Amount()

    def __setitem__(self, name: str, amount: Amount) -> None:
        self.remove(name)
        super().__setitem__(name, amount)
        self.total += amount

    def remove(self, name: str) -> Amount | None:
        """Remove and return the amount of this name, if there is one."""
        amount = super().pop(name, None)
        if amount is not None:
            self.total -= amount
        return amount


@dataclass(frozen=True, slots=True)
class ClaimSize:
    """What a claim may ask for.

    With `ahead` the claim prefetches more than can start now, and must be answered at once. Otherwise it may wait for
    work.
    """

    amount: Amount
    max_jobs: int
    ahead: bool


@dataclass
class Ledger:
    """The room of each attempt. At most `slots` attempts run at once, however small they are; 0 means no such limit."""

    offered: Amount
    slots: int = 0
    running: Reservations = field(default_factory=Reservations)
    waiting: Reservations = field(default_factory=Reservations)
    since: dict[str, float] = field(default_factory=dict)
    #: Since when each waiting attempt has found too little room.
    refused: dict[str, float] = field(default_factory=dict)
    #: The average run time of the last few jobs.
    average: float = 10.0
    #: How many short jobs have ended in quick succession, and when the last one ended.
    streak: int = 0
    ended: float = -10.0
    prefetch_after: float = 0.0
    short_seconds: float = SHORT_SECONDS
    chain_below_seconds: float = CHAIN_BELOW_SECONDS

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return bool(self.slots) and len(self.running) >= self.slots

    def free(self) -> Amount:
        """The resources that no attempt has right now."""
        return self.offered - self.running.total

    def room(self) -> Amount:
        """The room that a claim may ask for: the free amount, less the room that waiting attempts will take."""
        room = self.free()
        for amount in self.waiting.values() if room.usable else ():
            if room.covers(amount):
                room -= amount
        return room

    def reserves_room(self, now: float) -> bool:
        """Whether an attempt has waited for room so long that no other attempt may overtake it any more."""
        return now - next(iter(self.refused.values()), now) > OVERTAKE_SECONDS

    def prefetch_limit(self, now: float) -> int:
        """How many attempts may wait here in addition to the running ones. It is 0 unless jobs are short."""
        if self.average > self.short_seconds or now < self.prefetch_after or now - self.ended > self.short_seconds:
            return 0
        if now - min(self.since.values(), default=now) > self.short_seconds:
            return 0
        busy = len(self.running) or self.slots or 1
        return min(
            MAX_PREFETCHED_JOBS,
            PREFETCH_PER_SHORT_JOB * self.streak,
            max(1, int(PREFETCH_SECONDS / max(self.average, 1e-4))) * busy,
        )

    def should_chain(self, now: float) -> bool:
        """Whether jobs are so short that waiting attempts should wait with their runner."""
        return self.average <= self.chain_below_seconds and self.prefetch_limit(now) > 0

    def would_claim(self, now: float) -> ClaimSize | None:
        """What a claim would ask for now; None if no work may be claimed."""
        if self.reserves_room(now):
            return None
        ahead = self.prefetch_limit(now)
        if ahead and len(self.waiting) <= ahead // 2:  # many small claims would cost more than they save
            return ClaimSize(self.offered, ahead - len(self.waiting), ahead=True)
        room = self.room()
        slots = self.slots - len(self.running) - len(self.waiting) if self.slots else MAX_JOBS_PER_CLAIM
        if room.usable and slots > 0:
            return ClaimSize(room, min(slots, MAX_JOBS_PER_CLAIM), ahead=False)
        return None

    def wait(self, attempt: str, amount: Amount) -> None:
        self.waiting[attempt] = amount

    def adopt(self, attempt: str) -> None:
        """Count a waiting attempt as running because it is running already, even if there is no room for it."""
        self.refused.pop(attempt, None)
        amount = self.waiting.remove(attempt)
        if amount is not None:
            self.running[attempt] = amount

    def follow(self, attempt: str, now: float) -> None:
        """Count a waiting attempt as running: it has started in the room of an attempt that has ended."""
        self.adopt(attempt)
        self.since[attempt] = now

    def put_back(self, attempt: str) -> None:
        """Count an attempt as waiting again: it was not started after all."""
        amount = self.running.remove(attempt)
        if amount is not None:
            self.waiting[attempt] = amount

    def start(self, attempt: str, now: float) -> bool:
        """Reserve room for a waiting attempt. False if there is not enough."""
        if self.full or not self.free().covers(self.waiting[attempt]):
            self.refused.setdefault(attempt, now)
            return False
        self.follow(attempt, now)
        return True

    def release(self, attempt: str, now: float, seconds: float | None = None) -> None:
        """Free the attempt's room. `seconds` is how long it ran, if the caller knows more exactly than the ledger."""
        self.adopt(attempt)
        self.running.remove(attempt)
        since = self.since.pop(attempt, None)
        if since is not None:
            ran = seconds if seconds is not None else now - since
            if now - self.ended > self.short_seconds:  # after a pause the earlier average says nothing
                self.average, self.streak = ran, 0
            self.ended = now
            self.average += 0.3 * (min(ran, 10.0) - self.average)
            self.streak = self.streak + 1 if ran <= self.short_seconds else 0
