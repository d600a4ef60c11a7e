"""A program's own events: how many and how large they may be, for the coordinator and for the worker that reads them.

A program's event is in the history under the type `JOB_EVENT`. The type that the program gave it is in its data.
"""

from __future__ import annotations

import msgspec

JOB_EVENT = "job.event"
#: An attempt has at most this many in the history.
MOST_EVENTS = 10_000
#: One event has at most this many bytes, written as compact JSON.
EVENT_BYTES = 4 * 1024
#: One request carries at most this many.
EVENTS_PER_REQUEST = 256

_encode = msgspec.json.Encoder().encode


def size_of(event: msgspec.Struct) -> int:
    """The bytes of an event, written as compact JSON."""
    return len(_encode(event))
