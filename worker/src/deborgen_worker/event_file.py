"""The file to which a job appends events of its own, read line by line while it grows.

The number of an event is the number of its line, counted from 0. A later session of the worker reads the file from its
start again and must give each event the same number. So a line that is not an event keeps its number too, and is None
among the events.

The file belongs to the job. It may be a link, a pipe, endless, or truncated while it is read. Then, at worst, events
are left out and the job gets a warning.
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
from deborgen_worker.masking import NO_MASK, Mask
from deborgen_worker.workspace import open_inside

#: Read the file in blocks of this many bytes.
BLOCK = 64 * 1024
#: A line may have at most this many bytes: more than an event, because a line may have spaces and escapes.
LINE_BYTES = 4 * EVENT_BYTES
#: Read at most this many bytes of the file.
FILE_BYTES = 64 << 20
#: At the end of a job, read up to this many bytes without a separate thread.
INLINE_BYTES = 64 * 1024
#: In a request an event is nested two levels deep: in the body, and in the list of events.
LEVELS_AROUND = 2
KEYS = frozenset(field.encode_name for field in msgspec.structs.fields(ProgramEvent))


class LinePosition(NamedTuple):
    """The beginning of a line: its number, and its offset in the file."""

    number: int
    offset: int


START = LinePosition(0, 0)


def read_event(line: bytes) -> ProgramEvent:
    """The event on a line, checked as the coordinator will check it. Raises `Unreadable` with what is wrong."""
    value = strict_json.parse(line, LEVELS_AROUND)
    if not isinstance(value, dict):
        raise Unreadable("is not a JSON object")
    if unknown := value.keys() - KEYS:
        raise Unreadable(f"has the key {min(unknown)[:100]!r}, which belongs in its payload")
    try:
        event = msgspec.convert(value, ProgramEvent, strict=True)
    except msgspec.ValidationError as problem:
        raise Unreadable(f"does not fit: {problem}") from None
    if (size := size_of(event)) > EVENT_BYTES:
        raise Unreadable(f"has an event of {size} bytes; at most {EVENT_BYTES} are allowed")
    return event


class EventFile:
    """The events of one attempt. `sent` is how many of them the coordinator has; the sender sets it.

    While the job runs, only complete lines are read. Once it has ended, text after the last line break counts as a
    line.
    """

    def __init__(self, workspace: Path, mask: Mask = NO_MASK) -> None:
        self._workspace, self._mask = workspace, mask
        self._path = f"{workspace}/{OWN}/{EVENTS}"
        self.sent = 0
        #: The number of an event that the coordinator refused: None is sent under its number.
        self.left_out = -1
        #: Whether the remaining events can never be delivered.
        self.given_up = False
        #: Where reading begins; the end of all lines read so far; how far the search for a line break has come.
        self._position = self._read_to = self._searched = START
        #: The file's size when the coordinator had every line of it.
        self._all_sent = 0
        self._problems = 0
        self._first_problem = ""
        self._cut = False
        #: Once the job has ended: the file's size, and how many lines it has.
        self._end: int | None = None
        self._total: int | None = None

    def batch(self, ended: bool = False) -> list[ProgramEvent | None]:
        """The next events that the coordinator lacks, from the number `sent` on, at most as many as fit in a request.

        If the job has written nothing new, this costs one call for the size of its file.
        """
        size = self.end_size() if ended else self._size()
        if is_shorter := self._is_shorter(size):
            self._cut = True
            self._read_to = LinePosition(self._read_to.number, 0)
        # The coordinator may have fewer events than before if its database was restored from a backup.
        if is_shorter or self.sent < self._position.number:
            self._position, self._searched, self._all_sent = START, START, 0
        found: list[ProgramEvent | None] = []
        if self.given_up or size <= 0 or (size == self._all_sent and not ended):
            return found
        try:
            for event, after in self._events(self._position, ended):
                if after.number <= self.sent:
                    self._position = after
                    continue
                found.append(event if after.number - 1 != self.left_out else None)
                if len(found) == EVENTS_PER_REQUEST:
                    break
            if not found:
                self._all_sent = size
        except OSError:  # treat the file as missing; `finish` reports the reason
            pass
        return found

    # Once the job has ended

    def end_size(self) -> int:
        """The file's size once the job has ended, measured only once; negative if it is not a regular file."""
        if self._end is None:
            self._end = self._size()
        return self._end

    @property
    def has_much_unread(self) -> bool:
        """Whether so much of the file is unread, once the job has ended, that reading it takes a while."""
        return self.end_size() - self._position.offset > INLINE_BYTES

    @property
    def unsent(self) -> bool:
        """Whether, once the job has ended, the coordinator may still lack events."""
        if self.given_up:
            return False
        return self.end_size() > 0 if self._total is None else self.sent < self._total

    def finish(self) -> str:
        """Read all lines once the job has ended. Returns a warning for its submitter, or an empty text."""
        size = self.end_size()
        position = self._position
        notes = []
        try:
            if size > position.offset:
                for _, after in self._events(position, ended=True):
                    position = after
        except OSError as error:
            notes.append(f"cannot be read: {error.strerror or error}")
        self._total = position.number
        if size < 0:
            notes.append("is not a regular file")
        if self._cut or self._is_shorter(size):
            notes.append("was emptied or replaced, and events are missing")
        if self._problems:
            lines = "1 line was" if self._problems == 1 else f"{self._problems} lines were"
            notes.append(f"{lines} left out: {self._first_problem}")
        if size > position.offset and (position.number == MOST_EVENTS or position.offset >= FILE_BYTES):
            notes.append(f"was read only up to line {position.number}")
        return f"$DEBORGEN_EVENTS: {'; '.join(notes)}"[:500] if notes else ""

    # Internals

    def _size(self) -> int:
        """The file's size; 0 if there is none, -1 if it is not a regular file."""
        try:
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - mostly missing: one call finds out
        except OSError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else -1

    def _is_shorter(self, size: int) -> bool:
        """Whether a file of this size is shorter than the part that was read of it."""
        return 0 <= size < max(self._position.offset, self._read_to.offset)

    def _events(self, position: LinePosition, ended: bool) -> Iterator[tuple[ProgramEvent | None, LinePosition]]:
        """For each line from the position on: its event, or None, and the position after the line."""
        with os.fdopen(open_inside(self._workspace, f"{OWN}/{EVENTS}"), "rb", BLOCK) as file:
            file.seek(position.offset)
            while position.number < MOST_EVENTS and position.offset < FILE_BYTES:
                line = last = file.readline(LINE_BYTES + 1)
                too_long = len(line) > LINE_BYTES and not line.endswith(b"\n")
                if too_long:
                    if self._searched.number == position.number:
                        file.seek(max(self._searched.offset, file.tell()))
                    while last and not last.endswith(b"\n") and file.tell() < FILE_BYTES:
                        last = file.readline(BLOCK)
                    self._searched = LinePosition(position.number, file.tell() - len(last))
                if not (last.endswith(b"\n") or file.tell() >= FILE_BYTES or (ended and line)):
                    return
                position = LinePosition(position.number + 1, file.tell())
                yield self._read_line(None if too_long else line, position), position

    def _read_line(self, line: bytes | None, after: LinePosition) -> ProgramEvent | None:
        """The event on a line, or None. A problem is counted when the line is seen for the first time."""
        try:
            if line is None:
                raise Unreadable(f"has more than {LINE_BYTES} bytes")
            return read_event(self._mask.apply(line)) if line.strip() else None
        except Unreadable as problem:
            if after.number > self._read_to.number:
                self._problems += 1
                self._first_problem = self._first_problem or f"line {after.number} {problem}"
            return None
        finally:
            self._read_to = max(self._read_to, after)
