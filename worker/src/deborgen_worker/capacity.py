"""What the owner offers, what runs, and what may be asked for. Pure arithmetic; the caller holds the lock."""

from __future__ import annotations

from dataclasses import dataclass, field

from deborgen_shared.messages import Resources

#: Jobs shorter than this on average are claimed ahead, so that no slot waits for the network between two of them.
SHORT_SECONDS = 1.0
#: How much work, in seconds, may wait on this machine, how many jobs at most, and how many for each short one that
#: has ended just before: the next ones may not be short.
AHEAD_SECONDS = 0.5
AHEAD_MOST = 128
AHEAD_FOR_EACH = 4
#: Jobs shorter than this on average wait with their runner, which begins each in the room of another that has ended.
LANE_SECONDS = 0.05
#: How long smaller jobs may overtake one that waits here for more room. Then the room is kept for it.
OVERTAKE_SECONDS = 4.0
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


class Pile(dict[str, Amount]):
    """Amounts by name, with their sum at hand: it is asked for after every job, however many wait."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = Amount()

    def __setitem__(self, name: str, amount: Amount) -> None:
        self.take(name)
        super().__setitem__(name, amount)
        self.sum += amount

    def take(self, name: str) -> Amount | None:
        """Remove what is there under this name."""
        amount = super().pop(name, None)
        if amount is not None:
            self.sum -= amount
        return amount


@dataclass(frozen=True, slots=True)
class Asked:
    """What a claim may ask for. `ahead`: more than can start now, at once or not at all; else it may wait for it."""

    amount: Amount
    most: int
    ahead: bool


@dataclass
class Ledger:
    """Who has how much. `slots` bounds how many run at once, whatever they ask for; 0 is no bound."""

    offered: Amount
    slots: int = 0
    running: Pile = field(default_factory=Pile)
    waiting: Pile = field(default_factory=Pile)
    since: dict[str, float] = field(default_factory=dict)
    #: Since when those that wait have found too little room.
    refused: dict[str, float] = field(default_factory=dict)
    average: float = 10.0
    #: How many short jobs have ended here one soon after the other, and when the last one did.
    streak: int = 0
    ended: float = -10.0
    ahead_after: float = 0.0
    short_seconds: float = SHORT_SECONDS
    lane_seconds: float = LANE_SECONDS

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return bool(self.slots) and len(self.running) >= self.slots

    def free(self) -> Amount:
        """What no program uses at the moment."""
        return self.offered - self.running.sum

    def room(self) -> Amount:
        """What may be asked for: not what runs, nor what those that wait will take of the rest."""
        room = self.free()
        for amount in self.waiting.values() if room.usable else ():
            if room.holds(amount):
                room -= amount
        return room

    def makes_way(self, now: float) -> bool:
        """Whether an attempt has waited for its room for so long that no other may overtake it any more."""
        return now - next(iter(self.refused.values()), now) > OVERTAKE_SECONDS

    def ahead(self, now: float) -> int:
        """How many may wait here besides those that run: some, while jobs are so short that it does not matter."""
        if self.average > self.short_seconds or now < self.ahead_after or now - self.ended > self.short_seconds:
            return 0
        if now - min(self.since.values(), default=now) > self.short_seconds:
            return 0
        lanes = len(self.running) or self.slots or 1
        return min(
            AHEAD_MOST, AHEAD_FOR_EACH * self.streak, max(1, int(AHEAD_SECONDS / max(self.average, 1e-4))) * lanes
        )

    def chains(self, now: float) -> bool:
        """Whether jobs are so short that those that wait are left to their runner."""
        return self.average <= self.lane_seconds and self.ahead(now) > 0

    def question(self, now: float) -> Asked | None:
        """What a claim would ask for now; None if nothing may be asked for."""
        if self.makes_way(now):
            return None
        ahead = self.ahead(now)
        if ahead and len(self.waiting) <= ahead // 2:  # many small questions cost more than the wait they save
            return Asked(self.offered, ahead - len(self.waiting), ahead=True)
        room = self.room()
        slots = self.slots - len(self.running) - len(self.waiting) if self.slots else MOST_AT_ONCE
        if room.usable and slots > 0:
            return Asked(room, min(slots, MOST_AT_ONCE), ahead=False)
        return None

    def wait(self, attempt: str, amount: Amount) -> None:
        self.waiting[attempt] = amount

    def adopt(self, attempt: str) -> None:
        """A waiting attempt is found to run already, whether there is room for it or not."""
        self.refused.pop(attempt, None)
        amount = self.waiting.take(attempt)
        if amount is not None:
            self.running[attempt] = amount

    def follow(self, attempt: str, now: float) -> None:
        """It runs now in the room of one that has ended."""
        self.adopt(attempt)
        self.since[attempt] = now

    def back(self, attempt: str) -> None:
        """It turned out that it does not run: it waits."""
        amount = self.running.take(attempt)
        if amount is not None:
            self.waiting[attempt] = amount

    def start(self, attempt: str, now: float) -> bool:
        """Give a waiting attempt what it needs, if that is free."""
        if self.full or not self.free().holds(self.waiting[attempt]):
            self.refused.setdefault(attempt, now)
            return False
        self.follow(attempt, now)
        return True

    def end(self, attempt: str, now: float, seconds: float | None = None) -> None:
        """Whatever the attempt had is free again. `seconds` is how long it ran, if that is known better than here."""
        self.adopt(attempt)
        self.running.take(attempt)
        since = self.since.pop(attempt, None)
        if since is not None:
            ran = seconds if seconds is not None else now - since
            if now - self.ended > self.short_seconds:  # nothing is known of those that come now
                self.average, self.streak = ran, 0
            self.ended = now
            self.average += 0.3 * (min(ran, 10.0) - self.average)
            self.streak = self.streak + 1 if ran <= self.short_seconds else 0
