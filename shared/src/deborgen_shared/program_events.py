"""Limits on the events that a program writes, shared by the worker that reads them and the coordinator.

The history records a program's event with the type `JOB_EVENT`. The type that the program gave it is in its data.
"""

from __future__ import annotations

import msgspec

JOB_EVENT = "job.event"
#: The history records at most this many events per attempt.
MOST_EVENTS = 10_000
#: Maximum size of one event, written as compact JSON.
EVENT_BYTES = 4 * 1024
#: Maximum number of events in one request.
EVENTS_PER_REQUEST = 256

_encode = msgspec.json.Encoder().encode


def size_of(event: msgspec.Struct) -> int:
    """The size of an event in bytes, written as compact JSON."""
    return len(_encode(event))
