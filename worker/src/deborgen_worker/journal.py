"""An append-only file of records in which many writers share one fsync.

Each line has a checksum. When the journal is opened, everything from the first damaged line on is cut off: a power cut
interrupted it. So a record is either complete or not there at all.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path

from deborgen_worker.disk import Disk

#: The size of the reserve file in bytes.
RESERVE = 4 << 20


class SpoolFullError(Exception):
    """The spool's disk has no space for a record."""


class Journal:
    """Opens or creates the journal. `records` has the records that were found in it.

    A reserve file lies beside the journal. When the disk is full, it is removed, so that the results of jobs that have
    run can still be written.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path, self._disk = path, disk
        self._reserve = path.with_name("reserve")
        self._writing, self._syncing = threading.Lock(), threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        data = path.read_bytes()
        self.records, complete = _parse(data)
        if complete < len(data):
            os.ftruncate(self._fd, complete)
        self.size = complete
        self._synced = 0
        self._renamed = False
        disk.sync(self._fd)
        disk.sync_folder(path.parent)
        self.refill_reserve()

    def append(self, *records: bytes) -> None:
        """Append records. They are durable only once a later `commit` has returned."""
        lines = _lines(records)
        with self._writing:
            while True:
                try:
                    self._disk.append(self._fd, lines)
                    break
                except OSError as error:
                    os.ftruncate(self._fd, self.size)
                    if error.errno not in {errno.ENOSPC, errno.EDQUOT} or not self._reserve.exists():
                        raise SpoolFullError(f"{self._path.parent}: {error.strerror}") from error
                    self._reserve.unlink()
            self.size += len(lines)

    def commit(self) -> None:
        """Return when everything appended so far is durable. Threads that wait together share one fsync."""
        wanted = self.size
        with self._syncing:
            if self._synced >= wanted:
                return
            end = self.size
            self._disk.sync(self._fd)
            if self._renamed:  # a rewrite may have renamed the file without flushing the folder
                self._disk.sync_folder(self._path.parent)
                self._renamed = False
            self._synced = end

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace all records atomically. The caller makes sure that no record is appended meanwhile."""
        data = _lines(records)
        with self._syncing, self._writing:
            try:
                self._disk.replace(self._path, data)
            except OSError:
                self._renamed, self._synced = True, -1  # it may have failed after the rename, at the last flush
                raise
            else:
                self._synced = len(data)
            finally:  # even after a failure, later records must go to the file that has the journal's name now
                file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                os.close(self._fd)
                self._fd, self.size = file, os.fstat(file).st_size

    def refill_reserve(self) -> None:
        """Create the reserve file again, if the disk has space for it."""
        if self._reserve.exists():
            return
        try:
            with self._reserve.open("wb") as file:
                self._disk.reserve(file.fileno(), RESERVE)
        except OSError:
            self._reserve.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._fd)


def _lines(records: Iterable[bytes]) -> bytes:
    return b"".join([b"%08x %s\n" % (zlib.crc32(record), record) for record in records])


def _parse(data: bytes) -> tuple[list[bytes], int]:
    """The complete records from the start of the data, and where they end."""
    records: list[bytes] = []
    position = 0
    while (end := data.find(b"\n", position)) >= 0:
        line = data[position:end]
        if len(line) < 9 or line[:8] != b"%08x" % zlib.crc32(line[9:]):
            break
        records.append(line[9:])
        position = end + 1
    return records, position
