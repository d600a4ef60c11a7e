"""Chains of very short programs: which program follows which. The caller holds a lock.

The first program of a chain runs. The others wait with the supervisor, which starts the next one by itself. So the room
of the first program passes down the chain, and a program that needs more room than the last program cannot join.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from deborgen_worker.runners.protocol import Launch

#: At most this many seconds of work, and at most this many programs, wait behind each running program.
CHAIN_SECONDS = 0.05
CHAIN_MAX_PROGRAMS = 24
#: No program joins a chain whose first program has run for this many seconds.
JOIN_WITHIN_SECONDS = 0.2


@dataclass
class Chain:
    """A chain with a unique name. Its first program has run since `began`. No program joins a `closed` chain."""

    name: str
    began: float
    queue: deque[Launch]
    closed: bool = False


@dataclass
class Chains:
    """All chains, and the backlog of programs that cannot join any chain yet.

    The supervisor outlives the worker, so `number` must begin above the numbers that earlier sessions gave to chains.
    """

    number: int = 0
    chain_of: dict[str, Chain] = field(default_factory=dict)
    backlog: dict[str, Launch] = field(default_factory=dict)
    #: The average run time of the last few programs.
    average: float = 10.0
    seconds: float = CHAIN_SECONDS
    join_within: float = JOIN_WITHIN_SECONDS

    def open(self, launch: Launch, now: float) -> str:
        """Open a chain for a program that has room and starts at once. Returns the chain's name."""
        self.number += 1
        chain = self.chain_of[launch.attempt] = Chain(f"chain {self.number}", now, deque([launch]))
        return chain.name

    def assign(self, now: float) -> list[tuple[Launch, str]]:
        """Let programs of the backlog join chains. Returns each program that joined, with its chain's name."""
        joined = []
        most = min(CHAIN_MAX_PROGRAMS, int(self.seconds / max(self.average, 1e-4)))
        chains = (
            [chain for chain in self._chains() if not chain.closed and now - chain.began < self.join_within]
            if most
            else []
        )
        for launch in list(self.backlog.values()) if chains else ():
            fitting = [chain for chain in chains if len(chain.queue) <= most and _fits_into(launch, chain.queue[-1])]
            if not fitting:
                break
            chain = min(fitting, key=lambda each: len(each.queue))
            chain.queue.append(self.backlog.pop(launch.attempt))
            self.chain_of[launch.attempt] = chain
            joined.append((launch, chain.name))
        return joined

    def remove(self, attempt: str, now: float, seconds: float | None = None) -> tuple[str, str] | None:
        """Remove a program that has ended or was given back.

        If another program takes its place, returns that attempt, with the name of its chain if the supervisor does not
        have it yet.
        """
        if seconds is not None:
            self.average += 0.3 * (min(seconds, 10.0) - self.average)
        chain = self.chain_of.pop(attempt, None)
        if chain is None:
            return None
        first = chain.queue[0]
        if first.attempt != attempt:
            chain.queue = deque(each for each in chain.queue if each.attempt != attempt)
            return None
        chain.queue.popleft()
        chain.began, chain.closed = now, False
        if chain.queue:
            return chain.queue[0].attempt, ""
        following = next((each for each in self.backlog.values() if _fits_into(each, first)), None)
        if following is None:
            return None
        del self.backlog[following.attempt]
        return following.attempt, self.open(following, now)

    def drop(self, attempt: str) -> None:
        """Remove a program that could not be handed over to the supervisor. No other program takes its place."""
        if chain := self.chain_of.pop(attempt, None):
            chain.queue = deque(each for each in chain.queue if each.attempt != attempt)

    def close(self, attempt: str, closed: bool = True) -> None:
        """Close the chain of a program that is frozen or being ended. With `closed=False`, open it again."""
        if attempt in self.chain_of:
            self.chain_of[attempt].closed = closed

    def launch_of(self, attempt: str) -> Launch:
        return next(each for each in self.chain_of[attempt].queue if each.attempt == attempt)

    def _chains(self) -> list[Chain]:
        return list({chain.name: chain for chain in self.chain_of.values()}.values())


def _fits_into(launch: Launch, room: Launch) -> bool:
    return launch.cpus <= room.cpus and launch.memory <= room.memory and launch.disk <= room.disk
