"""What the owner offers, what runs, and what may be asked for. Pure arithmetic; the caller holds the lock."""

from __future__ import annotations

from dataclasses import dataclass, field

from deborgen_shared.messages import Resources

#: Jobs shorter than this on average are claimed ahead, so that no slot waits for the network between two of them.
SHORT_SECONDS = 1.0
#: How much work, in seconds, may wait on this machine, and how many jobs at most.
AHEAD_SECONDS = 0.5
AHEAD_MOST = 128
#: Attempts in one claim.
MOST_AT_ONCE = 128


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

    def holds(self, other: Amount) -> bool:
        return (
            other.cpus <= self.cpus
            and other.memory <= self.memory
            and other.gpus <= self.gpus
            and other.disk <= self.disk
        )

    @property
    def usable(self) -> bool:
        """Whether any job at all could fit."""
        return self.cpus > 0 and self.memory > 0 and self.disk > 0

    def message(self) -> Resources:
        return Resources(
            cpus=max(0.0, self.cpus), memory=max(0, self.memory), gpus=max(0, self.gpus), disk=max(0, self.disk)
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What a claim may ask for. `ahead`: it may be more than can start now; `wait`: it may wait for it."""

    amount: Amount
    most: int
    ahead: bool
    wait: bool


@dataclass
class Ledger:
    """Who has how much. `asked` are the claims on their way: what they may bring is not offered twice.

    `slots` bounds how many run at once, whatever they ask for; 0 is no bound.
    """

    offered: Amount
    slots: int = 0
    running: dict[str, Amount] = field(default_factory=dict)
    waiting: dict[str, Amount] = field(default_factory=dict)
    asked: dict[str, Amount] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    average: float = 10.0
    ahead_after: float = 0.0

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return bool(self.slots) and len(self.running) >= self.slots

    def free(self) -> Amount:
        """What no program uses at the moment."""
        return self.offered - total(self.running)

    def room(self) -> Amount:
        """What may be asked for: not what runs, nor what waits, nor what a claim on its way may bring."""
        return self.free() - total(self.waiting) - total(self.asked)

    def ahead(self, now: float) -> int:
        """How many may wait here besides those that run: some, while jobs are so short that it does not matter."""
        if self.average > SHORT_SECONDS or now < self.ahead_after:
            return 0
        if now - min(self.since.values(), default=now) > SHORT_SECONDS:
            return 0
        lanes = len(self.running) or self.slots or 1
        return min(AHEAD_MOST, max(1, int(AHEAD_SECONDS / max(self.average, 1e-4))) * lanes)

    def ask(self, claim: str, now: float) -> Asked | None:
        """Reserve what a claim may bring; None if nothing may be asked for."""
        asked = self._would_ask(now)
        if asked is not None:
            self.asked[claim] = asked.amount if asked.wait else Amount()
        return asked

    def wanting(self, now: float) -> bool:
        """Whether a claim would be made now."""
        return self._would_ask(now) is not None

    def _would_ask(self, now: float) -> Asked | None:
        ahead = self.ahead(now)
        if ahead and self.asked:
            return None  # one at a time: many small questions cost more than the wait they save
        room = self.room()
        slots = self.slots - len(self.running) - len(self.waiting) - len(self.asked) if self.slots else MOST_AT_ONCE
        if room.usable and slots > 0:
            most = max(min(slots, MOST_AT_ONCE), ahead)
            return Asked(room, most, ahead=most > slots or bool(ahead), wait=True)
        if ahead and self.running and len(self.waiting) <= ahead // 2:
            return Asked(room if room.usable else self.offered, ahead - len(self.waiting), ahead=True, wait=False)
        return None

    def answered(self, claim: str) -> None:
        self.asked.pop(claim, None)

    def wait(self, attempt: str, amount: Amount) -> None:
        self.waiting[attempt] = amount

    def start(self, attempt: str, now: float) -> bool:
        """Give a waiting attempt what it needs, if that is free."""
        if self.full or not self.free().holds(self.waiting[attempt]):
            return False
        self.running[attempt] = self.waiting.pop(attempt)
        self.since[attempt] = now
        return True

    def end(self, attempt: str, now: float) -> None:
        """Whatever the attempt had is free again."""
        self.waiting.pop(attempt, None)
        self.running.pop(attempt, None)
        since = self.since.pop(attempt, None)
        if since is not None:
            self.average += 0.3 * (min(now - since, 10.0) - self.average)


def total(amounts: dict[str, Amount]) -> Amount:
    result = Amount()
    for each in amounts.values():
        result += each
    return result
