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
    """The events of one attempt. `sent` is how many of them the coordinator has.

    While the job runs, only whole lines are read. Once it has ended, what is behind the last line end is a line too.
    """

    __slots__ = (
        "_cut", "_end", "_first_problem", "_given_up", "_judged", "_path", "_place", "_problems", "_read_to",
        "_searched", "_total", "_waiting", "_workspace", "sent",
    )  # fmt: skip

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._path = f"{workspace}/{OWN}/{EVENTS}"
        self.sent = 0
        #: Events that were read and that the coordinator does not have, and the place behind them.
        self._waiting: list[ProgramEvent | None] = []
        self._place = START
        #: How long the file was when its last whole line was read; how far no end of an unfinished line was found.
        self._read_to = self._searched = 0
        #: The number of lines that were looked at for problems, and of those that had one.
        self._judged = self._problems = 0
        self._first_problem = ""
        self._cut = self._given_up = False
        #: Of the file of a job that has ended: its size, and how many lines it has.
        self._end: int | None = None
        self._total: int | None = None

    # While the job runs

    def batch(self, ended: bool = False) -> list[ProgramEvent | None]:
        """The next events that the coordinator does not have, from the number `sent` on; at most one request of them.

        A job that has written nothing, or nothing more, costs one look at the size of its file.
        """
        if self._given_up:
            return []
        size = self.end_size() if ended else self._size()
        if 0 <= size < self._place.offset:
            self._start_again(cut=True)
        if size > (self._place.offset if ended else self._read_to):
            self._read_ahead(size, ended)
        return self._waiting.copy()

    def acknowledge(self, count: int) -> None:
        """The coordinator has this many events. They are more than it was sent if an earlier session sent them."""
        first = self._place.number - len(self._waiting)
        self.sent = count
        if count < first:  # its database is an older one now: the events before these are needed once more
            self._start_again()
        else:
            del self._waiting[: count - first]
            if count > self._place.number:  # the next lines are passed over
                self._read_to = 0

    def leave_out_next(self) -> None:
        """The coordinator will not have the next event: its number stays, and it does not."""
        self._waiting[0] = None

    def give_up(self) -> None:
        """The events that are left can never be delivered."""
        self._given_up = True

    # Once it has ended

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
        if self._given_up:
            return False
        return self.end_size() > 0 if self._total is None else self.sent < self._total

    def finish(self) -> str:
        """Look at all lines of a job that has ended; what its submitter should know of them, or nothing."""
        size = self.end_size()
        place = self._place
        notes = []
        try:
            if size > place.offset:
                for line, behind in self._lines(place, ended=True):
                    self._judge(behind.number - 1, line)
                    place = behind
        except OSError as error:
            notes.append(f"cannot be read: {error.strerror or error}")
        self._total = place.number
        if size < 0:
            notes.append("is not a regular file")
        if self._cut or 0 <= size < place.offset:
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

    def _start_again(self, cut: bool = False) -> None:
        self._waiting, self._place, self._read_to, self._searched = [], START, 0, 0
        self._cut = self._cut or cut

    def _read_ahead(self, size: int, ended: bool) -> None:
        """Read lines until there are as many events as a request may carry."""
        if len(self._waiting) == EVENTS_PER_REQUEST:
            return
        try:
            for line, behind in self._lines(self._place, ended):
                event = self._judge(behind.number - 1, line)
                self._place = behind
                if behind.number > self.sent:
                    self._waiting.append(event)
                    if len(self._waiting) == EVENTS_PER_REQUEST:
                        return
        except OSError:  # as if it were not there: `finish` says why
            return
        self._read_to = size

    def _lines(self, place: Place, ended: bool) -> Iterator[tuple[bytes | None, Place]]:
        """Each line from the place on, None if it is too long, and the place behind it."""
        if place.number >= MOST_EVENTS or place.offset >= FILE_BYTES:
            return
        file = open_inside(self._workspace, f"{OWN}/{EVENTS}")
        try:
            while place.number < MOST_EVENTS and place.offset < FILE_BYTES:
                block = os.pread(file, BLOCK, place.offset)
                *lines, rest = block.split(b"\n")
                for line in lines[: MOST_EVENTS - place.number]:
                    place = Place(place.number + 1, place.offset + len(line) + 1)
                    yield line if len(line) <= LINE_BYTES else None, place
                if len(block) < BLOCK:
                    if ended and rest and place.number < MOST_EVENTS:
                        yield (
                            rest if len(rest) <= LINE_BYTES else None,
                            Place(place.number + 1, place.offset + len(rest)),
                        )
                    return
                if not lines:
                    end = self._end_of_long_line(file, place.offset + BLOCK, ended)
                    if end is None:
                        return
                    place = Place(place.number + 1, end)
                    yield None, place
        finally:
            os.close(file)

    def _end_of_long_line(self, file: int, offset: int, ended: bool) -> int | None:
        """The offset behind the line end; None if the line goes on. What was searched before is not searched again."""
        offset = max(offset, self._searched)
        while offset < FILE_BYTES:
            block = os.pread(file, BLOCK, offset)
            if (found := block.find(b"\n")) >= 0:
                return offset + found + 1
            offset += len(block)
            if len(block) < BLOCK and ended:
                return offset
            if len(block) < BLOCK:
                self._searched = offset
                return None
        return offset

    def _judge(self, number: int, line: bytes | None) -> ProgramEvent | None:
        """The event on a line, or None. A problem is counted when the line is seen for the first time."""
        try:
            if line is None:
                raise Unreadable(f"has more than {LINE_BYTES} bytes")
            return read_event(line) if line.strip() else None
        except Unreadable as problem:
            if number >= self._judged:
                self._problems += 1
                self._first_problem = self._first_problem or f"line {number + 1} {problem}"
            return None
        finally:
            self._judged = max(self._judged, number + 1)
