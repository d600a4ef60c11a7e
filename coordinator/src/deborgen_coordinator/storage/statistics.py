"""Counts over everything, without a scan of the jobs: runs carry theirs."""

from __future__ import annotations

from . import workers
from .database import Connection

STATES = ("queued", "running", "succeeded", "failed", "canceled")


def gauges(reader: Connection) -> tuple[int, dict[str, int]]:
    """How many workers are online, and how many jobs are in each state."""
    sums = ", ".join(f"COALESCE(sum({state}), 0)" for state in STATES)
    counts = reader.one(f"SELECT {sums} FROM run")
    assert counts is not None
    return workers.count_online(reader), {state: int(count) for state, count in zip(STATES, counts, strict=True)}
