"""Counts over everything, without a scan of the jobs: runs carry theirs."""

from __future__ import annotations

from deborgen_shared.states import State

from . import workers
from .database import Connection

STATES = tuple(State)
COUNTS = "SELECT " + ", ".join(f"COALESCE(sum({state}), 0)" for state in STATES) + " FROM run"


def gauges(reader: Connection) -> tuple[int, dict[str, int]]:
    """How many workers are online, and how many jobs are in each state."""
    counts = reader.one(COUNTS)
    assert counts is not None
    return workers.count_online(reader), {state.value: int(count) for state, count in zip(STATES, counts, strict=True)}
