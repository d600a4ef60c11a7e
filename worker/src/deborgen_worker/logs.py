"""A job's output as one exact stream of bytes, which can be read from any offset while it grows.

The program or conmon writes the output to a file of the attempt, so it survives the worker. This module reads the file:
as it is (`RawLog`), or in conmon's line format (`K8sLog`). `CappedLog` turns it into the stream that is sent: all of
it, or its head and its tail with a line between them that says how many bytes are missing. The disk space of bytes that
will never be sent is freed.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

BLOCK = 1 << 20
#: The number of bytes in the file between two marks.
MARK_EVERY = 1 << 18
#: How many bytes conmon puts before the text of each line.
PREFIX = len("2026-11-16T03:16:04.681550054+00:00 stdout F ")
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
#: Linux only.
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)


def free_disk(path: Path, start: int, end: int) -> None:
    """Free the disk space of these bytes of a file that others append to. Where that is impossible, do nothing."""
    first, last = -(-start // 4096) * 4096, end - end % 4096
    if _fallocate is None or last <= first:
        return
    with contextlib.suppress(OSError), path.open("rb+") as file:
        _fallocate(file.fileno(), _PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(first), ctypes.c_int64(last - first))


class Log(Protocol):
    """A stream of bytes that grows at its end."""

    def size(self) -> int: ...

    def read(self, offset: int, count: int) -> bytes: ...

    def forget(self, start: int, end: int) -> None:
        """Note that these bytes will not be read again."""


class RawLog:
    """The file is the stream."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return self._path.stat().st_size
        return 0

    def read(self, offset: int, count: int) -> bytes:
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            return os.pread(file.fileno(), count, offset)
        return b""

    def forget(self, start: int, end: int) -> None:
        free_disk(self._path, start, end)


class K8sLog:
    """The lines of conmon's k8s-file format: `TIME STREAM F text` for a whole line, `P` for a piece of one.

    Decoding keeps marks, which are pairs of an offset in the stream and its offset in the file. So any offset is found
    again without decoding everything. Marks are saved before disk space is freed, because the next session needs them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark_file = path.with_name("log-marks")
        self._marks: list[tuple[int, int]] = [(0, 0)]
        if self._mark_file.exists():
            self._marks = [(int(decoded), int(raw)) for decoded, raw in json.loads(self._mark_file.read_text())]
        self._decoded, self._raw = self._marks[-1]

    def size(self) -> int:
        """Decode what was written before this call, and return the size of the stream so far.

        Even if the program keeps writing, this call ends.
        """
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while self._raw < size:
                block = os.pread(file.fileno(), BLOCK, self._raw)
                end = block.rfind(b"\n") + 1
                if end == 0:
                    break
                self._decoded += len(decode(block[:end]))
                self._raw += end
                if self._raw - self._marks[-1][1] >= MARK_EVERY:
                    self._marks.append((self._decoded, self._raw))
        return self._decoded

    def read(self, offset: int, count: int) -> bytes:
        at = bisect.bisect_right(self._marks, (offset, 1 << 62)) - 1
        pieces = bytearray()
        decoded, raw = self._marks[at]
        ends = [mark[1] for mark in self._marks[at + 1 :]] + [self._raw]
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            for end in ends:
                pieces += decode(os.pread(file.fileno(), end - raw, raw))
                raw = end
                if len(pieces) >= offset - decoded + count:
                    break
        return bytes(pieces[offset - decoded : offset - decoded + count])

    def forget(self, start: int, end: int) -> None:
        low = bisect.bisect_left(self._marks, (start, 0))
        high = bisect.bisect_right(self._marks, (end, 0)) - 1
        if high <= low:
            return
        del self._marks[low + 1 : high]
        temporary = self._mark_file.with_name("log-marks.tmp")
        temporary.write_text(json.dumps(self._marks[: low + 2]))
        temporary.rename(self._mark_file)
        free_disk(self._path, self._marks[low][1], self._marks[low + 1][1])


def decode(lines: bytes) -> bytes:
    """The program's bytes, from complete lines of the k8s-file format."""
    tag = PREFIX - 2
    return b"".join(
        [
            line[PREFIX:] + b"\n" if line[tag : tag + 1] == b"F" else line[PREFIX:]
            for line in lines.split(b"\n")
            if len(line) >= PREFIX
        ]
    )


def seam(dropped: int, cap: int) -> bytes:
    """The line that replaces dropped bytes in a log."""
    return f"\n[deborgen: {dropped} bytes of this log were dropped here, to stay below {cap} bytes]\n".encode()


class CappedLog:
    """The stream that is sent: at most `cap` bytes of the program's output, then the worker's own `notes`.

    While the program runs, only the head is available, because nobody knows yet which bytes will be the last. `finish`
    adds the rest. `decided` tells how many of the first bytes of the output stay as they are, whatever comes next.
    """

    def __init__(self, log: Log, cap: int, decided: Callable[[int], int] = lambda size: size) -> None:
        self._log, self._cap, self._decided = log, cap, decided
        self._tail = min(cap // 4, 8 << 20)
        self._head = cap - self._tail
        #: The parts of the stream, once the program has ended: ranges of its output, and text of the worker.
        self._sealed: list[range | bytes] | None = None

    def finish(self, notes: bytes = b"") -> int:
        """Seal the stream once the program has ended. Returns its final size."""
        total = self._log.size()
        if total <= self._cap:
            self._sealed = [range(total), notes]
        else:
            dropped = seam(total - self._head - self._tail, self._cap)
            self._sealed = [range(self._head), dropped, range(total - self._tail, total), notes]
        return self.size()

    def _pieces(self) -> list[range | bytes]:
        return self._sealed or [range(min(self._decided(self._log.size()), self._head))]

    def size(self) -> int:
        """How many bytes of the stream can be read now."""
        return sum(map(len, self._pieces()))

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from the offset; fewer at the end, or where bytes of the output are lost."""
        found = b""
        for piece in self._pieces():
            part = piece[max(0, offset) : max(0, offset + count)]
            offset -= len(piece)
            if isinstance(part, bytes):
                found += part
            elif part:
                output = self._log.read(part.start, len(part))
                found += output
                if len(output) < len(part):
                    break
        return found

    def trim(self) -> None:
        """Free the disk space of bytes that will never be sent, so that a flood of output does not fill the disk."""
        if self._sealed is None:
            end = self._log.size() - self._tail - BLOCK
            if end > self._head:
                self._log.forget(self._head, end)
