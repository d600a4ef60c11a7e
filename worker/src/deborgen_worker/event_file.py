"""The file to which a job appends events of its own, read line by line while it grows.

The number of an event is the number of its line, counted from 0. A later session of the worker, which reads the file
from its start again, gives each event the number that it had before. That is why a line that is not an event keeps its
number, and stands as None among the events.

The file is the job's. It may be a link, a pipe, endless, or cut while it is read: all that can happen then is that
events are left out, and that the job gets a warning.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from deborgen_shared import strict_json
from deborgen_shared.messages import ProgramEvent
from deborgen_shared.program_events import EVENT_BYTES, EVENTS_PER_REQUEST, MOST_EVENTS, size_of
from deborgen_shared.strict_json import Unreadable
from deborgen_worker.folders import EVENTS, OWN
from deborgen_worker.workspace import open_inside

#: The file is read in blocks of this many bytes.
BLOCK = 64 * 1024
#: A line may have this many bytes: more than an event, because it may have spaces and escapes that compact JSON omits.
LINE_BYTES = 4 * EVENT_BYTES
#: Nothing behind this many bytes is read.
FILE_BYTES = 64 << 20
#: Up to this many bytes are read at the end of a job in passing, without a thread for it.
LITTLE_BYTES = 64 * 1024
#: On its way an event has two levels around it: the body, and the list of events.
LEVELS_AROUND = 2
KEYS = frozenset(field.encode_name for field in msgspec.structs.fields(ProgramEvent))


class Place(NamedTuple):
    """The beginning of a line: its number, and its offset in the file."""

    number: int
    offset: int


START = Place(0, 0)


def read_event(line: bytes) -> ProgramEvent:
    """The event on a line, judged as the coordinator will judge it. `Unreadable` says what is wrong with the line."""
    value = strict_json.parse(line, LEVELS_AROUND)
    if not isinstance(value, dict):
        raise Unreadable("is not a JSON object")
    if unknown := value.keys() - KEYS:
        raise Unreadable(f"has the key {min(unknown)[:100]!r}, which belongs into its payload")
    try:
        event = msgspec.convert(value, ProgramEvent, strict=True)
    except msgspec.ValidationError as problem:
        raise Unreadable(f"does not fit: {problem}") from None
    if (size := size_of(event)) > EVENT_BYTES:
        raise Unreadable(f"has an event of {size} bytes, which may have {EVENT_BYTES}")
    return event


class EventFile:
    """The events of one attempt. `sent` is how many of them the coordinator has; whoever sends them sets it.

    While the job runs, only whole lines are read. Once it has ended, what is behind the last line end is a line too.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._path = f"{workspace}/{OWN}/{EVENTS}"
        self.sent = 0
        #: The number of an event that the coordinator will not have: its number stays, and it does not.
        self.left_out = -1
        #: Whether the events that are left can never be delivered.
        self.given_up = False
        #: Where reading begins, the place behind all lines that were looked at, and how far no line end was found.
        self._place = self._judged = self._searched = START
        #: How long the file was when no line was left in it that the coordinator does not have.
        self._all_sent = 0
        self._problems = 0
        self._first_problem = ""
        self._cut = False
        #: Of the file of a job that has ended: its size, and how many lines it has.
        self._end: int | None = None
        self._total: int | None = None

    def batch(self, ended: bool = False) -> list[ProgramEvent | None]:
        """The next events that the coordinator does not have, from the number `sent` on; at most one request of them.

        A job that has written nothing, or nothing more, costs one look at the size of its file.
        """
        size = self.end_size() if ended else self._size()
        if is_shorter := self._is_shorter(size):
            self._cut = True
            self._judged = Place(self._judged.number, 0)
        if is_shorter or self.sent < self._place.number:  # or the coordinator has an older database now
            self._place, self._searched, self._all_sent = START, START, 0
        found: list[ProgramEvent | None] = []
        if self.given_up or size <= 0 or (size == self._all_sent and not ended):
            return found
        try:
            for event, behind in self._events(self._place, ended):
                if behind.number <= self.sent:
                    self._place = behind
                    continue
                found.append(event if behind.number - 1 != self.left_out else None)
                if len(found) == EVENTS_PER_REQUEST:
                    break
            if not found:
                self._all_sent = size
        except OSError:  # as if it were not there: `finish` says why
            pass
        return found

    # Once the job has ended

    def end_size(self) -> int:
        """How long the file of a job that has ended is; below zero if it is not a file. It is looked at once."""
        if self._end is None:
            self._end = self._size()
        return self._end

    @property
    def much_left(self) -> bool:
        """Whether so much of the file of a job that has ended is still to be read that it takes a while."""
        return self.end_size() - self._place.offset > LITTLE_BYTES

    @property
    def unsent(self) -> bool:
        """Whether there may be events of a job that has ended which the coordinator does not have."""
        if self.given_up:
            return False
        return self.end_size() > 0 if self._total is None else self.sent < self._total

    def finish(self) -> str:
        """Look at all lines of a job that has ended; what its submitter should know of them, or nothing."""
        size = self.end_size()
        place = self._place
        notes = []
        try:
            if size > place.offset:
                for _, behind in self._events(place, ended=True):
                    place = behind
        except OSError as error:
            notes.append(f"cannot be read: {error.strerror or error}")
        self._total = place.number
        if size < 0:
            notes.append("is not a regular file")
        if self._cut or self._is_shorter(size):
            notes.append("was emptied or replaced, and events are missing")
        if self._problems:
            lines = "1 line was" if self._problems == 1 else f"{self._problems} lines were"
            notes.append(f"{lines} left out: {self._first_problem}")
        if size > place.offset and (place.number == MOST_EVENTS or place.offset >= FILE_BYTES):
            notes.append(f"was read up to its line {place.number} and no further")
        return f"$DEBORGEN_EVENTS: {'; '.join(notes)}"[:500] if notes else ""

    # Inside

    def _size(self) -> int:
        """The size of the file: 0 if there is none, -1 if it is something else."""
        try:
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - mostly it is not there: one call tells
        except OSError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else -1

    def _is_shorter(self, size: int) -> bool:
        """Whether a file of this size has lost what was read of it."""
        return 0 <= size < max(self._place.offset, self._judged.offset)

    def _events(self, place: Place, ended: bool) -> Iterator[tuple[ProgramEvent | None, Place]]:
        """The event on each line from the place on, if it is one, and the place behind the line."""
        with os.fdopen(open_inside(self._workspace, f"{OWN}/{EVENTS}"), "rb", BLOCK) as file:
            file.seek(place.offset)
            while place.number < MOST_EVENTS and place.offset < FILE_BYTES:
                line = last = file.readline(LINE_BYTES + 1)
                too_long = len(line) > LINE_BYTES and not line.endswith(b"\n")
                if too_long:
                    if self._searched.number == place.number:
                        file.seek(max(self._searched.offset, file.tell()))
                    while last and not last.endswith(b"\n") and file.tell() < FILE_BYTES:
                        last = file.readline(BLOCK)
                    self._searched = Place(place.number, file.tell() - len(last))
                if not (last.endswith(b"\n") or file.tell() >= FILE_BYTES or (ended and line)):
                    return
                place = Place(place.number + 1, file.tell())
                yield self._judge(None if too_long else line, place), place

    def _judge(self, line: bytes | None, behind: Place) -> ProgramEvent | None:
        """The event on a line, or None. A problem is counted when the line is seen for the first time."""
        try:
            if line is None:
                raise Unreadable(f"has more than {LINE_BYTES} bytes")
            return read_event(line) if line.strip() else None
        except Unreadable as problem:
            if behind.number > self._judged.number:
                self._problems += 1
                self._first_problem = self._first_problem or f"line {behind.number} {problem}"
            return None
        finally:
            self._judged = max(self._judged, behind)
