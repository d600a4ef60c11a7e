"""The journal: complete records or none, shared fsyncs, a reserve for a full disk. And the history beside it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from deborgen_shared.messages import Assignment, Result
from deborgen_worker import spool
from deborgen_worker.disk import Disk
from deborgen_worker.journal import Journal, SpoolFullError
from deborgen_worker.spool import ResultRecord, Spool, read_history


class CountingDisk(Disk):
    """Counts the fsyncs. It can pretend to be full, or hold an fsync until it is released."""

    def __init__(self) -> None:
        self.syncs = 0
        self.full = False
        self.gate: threading.Event | None = None

    def sync(self, fd: int) -> None:
        if self.gate is not None:
            self.gate.wait(10)
        self.syncs += 1
        super().sync(fd)

    def append(self, fd: int, data: bytes) -> None:
        if self.full:
            super().append(fd, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(fd, data)


def test_records_are_read_again_after_reopening(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", Disk())
    for number in range(10):
        journal.append(b"record %d" % number)
    journal.commit()
    assert Journal(tmp_path / "journal", Disk()).records == [b"record %d" % number for number in range(10)]


@pytest.mark.parametrize("cut", range(1, 20))
def test_fault_14_a_torn_last_record_is_cut_off_and_the_rest_is_intact(tmp_path: Path, cut: int) -> None:
    """Seen to fail when a torn record stays where the next one is written."""
    path = tmp_path / "journal"
    journal = Journal(path, Disk())
    journal.append(b"first")
    journal.append(b"the second")
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    again = Journal(path, Disk())
    assert again.records == [b"first"]
    again.append(b"third")
    assert Journal(path, Disk()).records == [b"first", b"third"]


def test_nothing_after_a_damaged_record_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path, Disk())
    for text in (b"one", b"two", b"three"):
        journal.append(text)
    path.write_bytes(path.read_bytes().replace(b"two", b"tvo"))
    assert Journal(path, Disk()).records == [b"one"]


def test_threads_that_commit_together_share_an_fsync(tmp_path: Path) -> None:
    disk = CountingDisk()
    journal = Journal(tmp_path / "journal", disk)
    disk.syncs, disk.gate = 0, threading.Event()
    begun = threading.Barrier(9)

    def write() -> None:
        journal.append(b"x")
        begun.wait(10)
        journal.commit()

    writers = [threading.Thread(target=write, daemon=True) for _ in range(8)]
    for each in writers:
        each.start()
    begun.wait(10)
    disk.gate.set()
    for each in writers:
        each.join(10)
    assert disk.syncs <= 2


def test_a_full_disk_leaves_no_torn_record_and_uses_the_reserve_first(tmp_path: Path) -> None:
    disk = CountingDisk()
    journal = Journal(tmp_path / "journal", disk)
    journal.append(b"kept")
    assert (tmp_path / "reserve").exists()
    disk.full = True
    with pytest.raises(SpoolFullError):
        journal.append(b"does not fit")
    assert not (tmp_path / "reserve").exists()
    disk.full = False
    journal.append(b"fits again")
    assert Journal(tmp_path / "journal", Disk()).records == [b"kept", b"fits again"]


def test_a_rewrite_replaces_everything_in_one_step(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", Disk())
    for _ in range(100):
        journal.append(b"old")
    journal.rewrite([b"new"])
    journal.append(b"newer")
    assert Journal(tmp_path / "journal", Disk()).records == [b"new", b"newer"]


def settle(writer: Spool, number: int) -> None:
    name = f"1.{number}/1"
    given = Assignment(
        attempt=name, job=f"1.{number}", number=1, spec={"run": "true"}, params={}, inputs=[], secrets={},
        timeout_seconds=60.0, lease_seconds=60.0,
    )  # fmt: skip
    writer.claim_answered("r", [given])
    writer.ended(ResultRecord(name, Result(attempt=name, outcome="succeeded", seconds=1.5)))
    writer.settle({name: "accepted"})


class FolderCannotBeFlushed(Disk):
    """Fails to flush a folder while `broken`; the rename before it has been made."""

    broken = False

    def sync_folder(self, folder: Path) -> None:
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().sync_folder(folder)


def test_records_after_a_rewrite_that_failed_at_its_last_step_are_kept(tmp_path: Path) -> None:
    """Seen to fail when the journal goes on writing to the file that the rewrite has replaced."""
    disk = FolderCannotBeFlushed()
    journal = Journal(tmp_path / "journal", disk)
    journal.append(b"old")
    disk.broken = True
    with pytest.raises(OSError, match="Input/output"):
        journal.rewrite([b"compacted"])
    with pytest.raises(OSError, match="Input/output"):
        journal.commit()  # the new name may still be lost in a power cut
    disk.broken = False
    journal.append(b"later")
    journal.commit()
    journal.close()
    assert Journal(tmp_path / "journal", Disk()).records == [b"compacted", b"later"]


def test_the_history_lists_how_attempts_ended_and_skips_a_torn_line(tmp_path: Path) -> None:
    assert read_history(tmp_path, 10) == []
    writer = Spool(tmp_path, Disk(), "boot")
    for number in (1, 2, 3):
        settle(writer, number)
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"attempt": "1.4')
    found = read_history(tmp_path, 3)
    assert [(each["attempt"], each["outcome"], each["seconds"]) for each in found] == [
        ("1.2/1", "succeeded", 1.5), ("1.3/1", "succeeded", 1.5),
    ]  # fmt: skip
    assert (tmp_path / "history.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_long_history_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "HISTORY_BYTES", 400)
    writer = Spool(tmp_path, Disk(), "boot")
    for number in (1, 2, 3):
        settle(writer, number)
    assert [each["attempt"] for each in read_history(tmp_path, 10)] == ["1.3/1"]
    assert (tmp_path / "history.old.jsonl").exists()
