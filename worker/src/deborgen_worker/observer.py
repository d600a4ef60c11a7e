"""Looks at the workspaces of running jobs: whether their programs still write anything, and ask for checkpoints.

It has a thread of its own, because whatever belongs to a job may be slow to look at. Heartbeats, the clock and the
owner's commands never wait for it.
"""

from __future__ import annotations

import os

from deborgen_worker.agent import Agent
from deborgen_worker.attempts import Mark
from deborgen_worker.execution import Execution
from deborgen_worker.folders import ASKED, EVENTS, OUTPUT, OWN, PROGRESS
from deborgen_worker.runners.protocol import Launch
from deborgen_worker.steps import AttemptEvent, CheckpointAsked, Observed

#: The state of a file that does not exist.
MISSING: Mark = (-1,)


class Observer:
    """One `step` looks at every running job once."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def step(self) -> None:
        running = self._agent.read_state(
            lambda machine, executions: [executions[name] for name in machine.attempts if self._agent.is_running(name)]
        )
        events: list[AttemptEvent] = [Observed(each.id, mark_of(each.launch)) for each in running if each.spec.watchdog]
        events += [CheckpointAsked(each.id) for each in running if each.checkpoints is not None and _asks(each)]
        if events:
            self._agent.handle(events)


def _asks(execution: Execution) -> bool:
    """Whether the program has written to $DEBORGEN_CHECKPOINT since the last look."""
    before, now = execution.asked, _state_of(f"{execution.launch.workspace}/{OWN}/{ASKED}")
    execution.asked = now
    return before != now and now != MISSING


def mark_of(launch: Launch) -> Mark:
    """What the program has written so far: its output, its progress and its events."""
    own = f"{launch.workspace}/{OWN}"
    return (
        *_state_of(f"{launch.folder}/{OUTPUT}"),
        *_state_of(f"{own}/{PROGRESS}"),
        *_state_of(f"{own}/{EVENTS}"),
    )


def _state_of(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return MISSING
    return found.st_size, found.st_mtime_ns
