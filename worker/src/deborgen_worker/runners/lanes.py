"""Chains of very short programs: which of them follow each other. The caller holds a lock.

The first of a lane runs, the others wait with the supervisor, which starts the next one without being told. So the room
of the first one passes down the lane, and nothing joins a lane that needs more room than the last one in it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from deborgen_worker.runners.protocol import Launch

#: At most this many seconds of work, and this many programs, wait behind each program that runs.
LANE_SECONDS = 0.05
LANE_MOST = 24
#: Nothing is put behind a program that has run for this many seconds already.
YOUNG_SECONDS = 0.2


@dataclass
class Lane:
    """A chain, by a name that no other has ever had. Its first runs since `began`; nothing joins a `closed` one."""

    name: str
    began: float
    queue: deque[Launch]
    closed: bool = False


@dataclass
class Lanes:
    """All lanes, and the backlog of programs that fit into none of them yet.

    The supervisor outlives this process and its lanes, so each process begins with a number that none before it used.
    """

    number: int = 0
    lane_of: dict[str, Lane] = field(default_factory=dict)
    backlog: dict[str, Launch] = field(default_factory=dict)
    #: How long programs run, on the average of the last few.
    average: float = 10.0
    seconds: float = LANE_SECONDS
    young: float = YOUNG_SECONDS

    def open(self, launch: Launch, now: float) -> str:
        """A lane of its own for a program that has room and runs at once."""
        self.number += 1
        lane = self.lane_of[launch.attempt] = Lane(f"lane {self.number}", now, deque([launch]))
        return lane.name

    def place(self, now: float) -> list[tuple[Launch, str]]:
        """What of the backlog is to wait in which lane from now on."""
        placed = []
        most = min(LANE_MOST, int(self.seconds / max(self.average, 1e-4)))
        lanes = [lane for lane in self._lanes() if not lane.closed and now - lane.began < self.young] if most else []
        for launch in list(self.backlog.values()) if lanes else ():
            fitting = [lane for lane in lanes if len(lane.queue) <= most and _fits(launch, lane.queue[-1])]
            if not fitting:
                break
            lane = min(fitting, key=lambda each: len(each.queue))
            lane.queue.append(self.backlog.pop(launch.attempt))
            self.lane_of[launch.attempt] = lane
            placed.append((launch, lane.name))
        return placed

    def leave(self, attempt: str, now: float, seconds: float | None = None) -> tuple[str, str] | None:
        """It is over, or given back. Returns the one that runs in its place, if there is one: its name, and the name of
        its lane if it must be started there."""
        if seconds is not None:
            self.average += 0.3 * (min(seconds, 10.0) - self.average)
        lane = self.lane_of.pop(attempt, None)
        if lane is None:
            return None
        first = lane.queue[0]
        if first.attempt != attempt:
            lane.queue = deque(each for each in lane.queue if each.attempt != attempt)
            return None
        lane.queue.popleft()
        lane.began, lane.closed = now, False
        if lane.queue:
            return lane.queue[0].attempt, ""
        following = next((each for each in self.backlog.values() if _fits(each, first)), None)
        if following is None:
            return None
        del self.backlog[following.attempt]
        return following.attempt, self.open(following, now)

    def drop(self, attempt: str) -> None:
        """It could not be handed over: it leaves its lane, and nothing begins for that."""
        if lane := self.lane_of.pop(attempt, None):
            lane.queue = deque(each for each in lane.queue if each.attempt != attempt)

    def close(self, attempt: str, closed: bool = True) -> None:
        """Its program was stopped or is being ended: nothing may join its lane, unless it goes on."""
        if attempt in self.lane_of:
            self.lane_of[attempt].closed = closed

    def launch_of(self, attempt: str) -> Launch:
        return next(each for each in self.lane_of[attempt].queue if each.attempt == attempt)

    def _lanes(self) -> list[Lane]:
        return list({lane.name: lane for lane in self.lane_of.values()}.values())


def _fits(launch: Launch, room: Launch) -> bool:
    return launch.cpus <= room.cpus and launch.memory <= room.memory and launch.disk <= room.disk
