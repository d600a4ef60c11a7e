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
#: How much of it may be with the runner already, behind each program that runs, and how many jobs at most.
LANE_SECONDS = 0.05
LANE_MOST = 24
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
    """Who has how much. `asked` are the claims on their way: what they may bring is not offered twice.

    `slots` bounds how many run at once, whatever they ask for; 0 is no bound.
    """

    offered: Amount
    slots: int = 0
    running: Pile = field(default_factory=Pile)
    waiting: Pile = field(default_factory=Pile)
    asked: Pile = field(default_factory=Pile)
    since: dict[str, float] = field(default_factory=dict)
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
        """What may be asked for: not what runs, nor what waits, nor what a claim on its way may bring."""
        return self.free() - self.waiting.sum - self.asked.sum

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

    def behind(self) -> int:
        """How many may wait behind each program that runs: none unless jobs are very short."""
        return min(LANE_MOST, int(self.lane_seconds / max(self.average, 1e-4)))

    def ask(self, claim: str, now: float) -> Asked | None:
        """Reserve what a claim may bring; None if nothing may be asked for."""
        asked = self._would_ask(now)
        if asked is not None:
            self.asked[claim] = Amount() if asked.ahead else asked.amount
        return asked

    def wanting(self, now: float) -> bool:
        """Whether a claim would be made now."""
        return self._would_ask(now) is not None

    def _would_ask(self, now: float) -> Asked | None:
        ahead = self.ahead(now)
        if ahead:
            # One at a time: many small questions cost more than the wait they save.
            on_its_way = any(not each.usable for each in self.asked.values())
            if on_its_way or len(self.waiting) > ahead // 2:
                return None
            return Asked(self.offered, ahead - len(self.waiting), ahead=True)
        room = self.room()
        slots = self.slots - len(self.running) - len(self.waiting) - len(self.asked) if self.slots else MOST_AT_ONCE
        if room.usable and slots > 0:
            return Asked(room, min(slots, MOST_AT_ONCE), ahead=False)
        return None

    def answered(self, claim: str) -> None:
        self.asked.take(claim)

    def wait(self, attempt: str, amount: Amount) -> None:
        self.waiting[attempt] = amount

    def adopt(self, attempt: str) -> None:
        """A waiting attempt is found to run already, whether there is room for it or not."""
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

    def start(self, attempt: str, now: float, *, ahead: bool = False) -> bool:
        """Give a waiting attempt what it needs, if that is free. One that was claimed ahead of need does not get what a
        claim on its way has reserved: the jobs that it brings came first."""
        amount = self.waiting[attempt]
        free = self.free() - self.asked.sum if ahead else self.free()
        if self.full or not free.holds(amount):
            return False
        self.waiting.take(attempt)
        self.running[attempt] = amount
        self.since[attempt] = now
        return True

    def end(self, attempt: str, now: float, seconds: float | None = None) -> None:
        """Whatever the attempt had is free again. `seconds` is how long it ran, if that is known better than here."""
        self.waiting.take(attempt)
        self.running.take(attempt)
        since = self.since.pop(attempt, None)
        if since is not None:
            ran = seconds if seconds is not None else now - since
            if now - self.ended > self.short_seconds:  # nothing is known of those that come now
                self.average, self.streak = ran, 0
            self.ended = now
            self.average += 0.3 * (min(ran, 10.0) - self.average)
            self.streak = self.streak + 1 if ran <= self.short_seconds else 0
