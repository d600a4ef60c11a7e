"""Counts over everything, without a scan of the jobs: runs carry theirs."""

from __future__ import annotations

from .database import Connection

STATES = ("queued", "running", "succeeded", "failed", "canceled")


def gauges(reader: Connection) -> tuple[int, dict[str, int]]:
    """How many workers are online, and how many jobs are in each state."""
    online = reader.one("SELECT count(*) FROM worker WHERE online = 1")
    sums = ", ".join(f"COALESCE(sum({state}), 0)" for state in STATES)
    counts = reader.one(f"SELECT {sums} FROM run")  # noqa: S608
    assert online is not None
    assert counts is not None
    return int(online[0]), {state: int(count) for state, count in zip(STATES, counts, strict=True)}
