"""The blob store: a blob is complete and verified, or it does not exist."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deborgen_coordinator.blobs import DigestMismatch, NoSpace, OffsetMismatch
from deborgen_coordinator.blobs.local import LocalBlobs


def nothing(size: int, upload: str) -> None:
    pass


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content(blobs: LocalBlobs, digest: str) -> bytes:
    size = blobs.size(digest)
    assert size is not None
    return b"".join(blobs.open_range(digest, 0, size))


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and p.parent.name != "locks")


class Cut(Exception):
    pass


def cut_after(data: bytes, count: int, piece: int = 1000) -> Iterator[bytes]:
    for start in range(0, count, piece):
        yield data[start : min(start + piece, count)]
    raise Cut


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "blobs", wait_for_upload=0.1)


def test_a_blob_is_stored_under_its_digest_and_read_back_in_ranges(blobs: LocalBlobs, tmp_path: Path) -> None:
    data = os.urandom(700_000)
    digest = digest_of(data)
    assert blobs.put(digest, [data[:300_000], data[300_000:]], nothing) == len(data)
    assert content(blobs, digest) == data
    assert b"".join(blobs.open_range(digest, 299_999, 300_003)) == data[299_999:300_003]
    assert (tmp_path / "blobs" / digest[:2] / digest).stat().st_size == len(data)
    assert files(tmp_path / "blobs" / "uploads") == []


def test_the_row_is_written_only_when_the_bytes_are_in_place(blobs: LocalBlobs) -> None:
    data = b"x" * 1000
    digest = digest_of(data)
    seen: list[int | None] = []
    assert blobs.size(digest) is None
    blobs.put(digest, [data], lambda size, upload: seen.append(blobs.size(digest)))
    assert seen == [1000]


def test_fault_40_a_flipped_bit_is_refused_by_digest_and_the_repeat_works(blobs: LocalBlobs, tmp_path: Path) -> None:
    """Seen to fail when the digest of bytes is not checked."""
    data = bytearray(os.urandom(5000))
    digest = digest_of(bytes(data))
    data[1234] ^= 4
    with pytest.raises(DigestMismatch):
        blobs.put(digest, [bytes(data)], nothing)
    assert files(tmp_path / "blobs") == []
    data[1234] ^= 4
    blobs.put(digest, [bytes(data)], nothing)
    assert content(blobs, digest) == bytes(data)


def test_fault_19_an_upload_cut_fifty_times_at_random_bytes_is_resumed(blobs: LocalBlobs) -> None:
    """Seen to fail when an interrupted upload is discarded."""
    chance = random.Random(19)
    data = chance.randbytes(400_000)
    digest = digest_of(data)
    with pytest.raises(Cut):
        blobs.put(digest, cut_after(data, 1), nothing)
    for _ in range(50):
        offset = blobs.offset(digest)
        upto = chance.randrange(1, max(2, (len(data) - offset) // 20))
        with pytest.raises(Cut):
            blobs.append(digest, offset, cut_after(data[offset:], upto), None, nothing)
        assert blobs.offset(digest) == offset + upto
        assert blobs.size(digest) is None
    offset = blobs.offset(digest)
    assert 50 < offset < len(data)
    assert blobs.append(digest, offset, [data[offset:]], None, nothing) == (len(data), True)
    assert content(blobs, digest) == data
    assert blobs.offset(digest) == 0


def test_an_upload_in_parts_is_whole_when_its_length_is_reached(blobs: LocalBlobs) -> None:
    data = os.urandom(30_000)
    digest = digest_of(data)
    assert blobs.append(digest, 0, [data[:10_000]], 30_000, nothing) == (10_000, False)
    assert blobs.append(digest, 10_000, [data[10_000:20_000]], 30_000, nothing) == (20_000, False)
    assert blobs.append(digest, 20_000, [data[20_000:]], 30_000, nothing) == (30_000, True)
    assert content(blobs, digest) == data


def test_a_blob_in_many_parts_is_hashed_once_and_not_once_per_part(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(400_000)
    hashed = 0

    class Counting:
        def __init__(self) -> None:
            self._seen = hashlib.new("sha256")

        def update(self, piece: bytes) -> None:
            nonlocal hashed
            hashed += len(piece)
            self._seen.update(piece)

        def hexdigest(self) -> str:
            return self._seen.hexdigest()

    digest = digest_of(data)
    monkeypatch.setattr("deborgen_coordinator.blobs.local.hashlib.sha256", Counting)
    for start in range(0, len(data), 10_000):
        blobs.append(digest, start, [data[start : start + 10_000]], len(data), nothing)
    assert content(blobs, digest) == data
    assert hashed == len(data)


def test_a_cached_hash_is_discarded_after_another_process_wrote_to_the_upload(
    blobs: LocalBlobs, tmp_path: Path
) -> None:
    data = b"right" * 1000
    digest = digest_of(data)
    other = LocalBlobs(tmp_path / "blobs")
    blobs.append(digest, 0, [data[:3000]], len(data), nothing)
    with pytest.raises(Cut):
        other.put(digest, cut_after(b"wrong" * 600, 3000), nothing)
    assert blobs.offset(digest) == 3000
    with pytest.raises(DigestMismatch):
        blobs.append(digest, 3000, [data[3000:]], len(data), nothing)
    assert blobs.size(digest) is None


def test_an_upload_that_resumes_at_the_wrong_byte_changes_nothing(blobs: LocalBlobs) -> None:
    data = os.urandom(3000)
    digest = digest_of(data)
    with pytest.raises(Cut):
        blobs.put(digest, cut_after(data, 1500), nothing)
    with pytest.raises(OffsetMismatch) as refused:
        blobs.append(digest, 1000, [data[1000:]], None, nothing)
    assert refused.value.offset == 1500
    assert blobs.offset(digest) == 1500


def test_a_resumed_upload_whose_first_part_was_damaged_is_refused_and_nothing_is_kept(
    blobs: LocalBlobs, tmp_path: Path
) -> None:
    data = os.urandom(3000)
    digest = digest_of(data)
    with pytest.raises(Cut):
        blobs.put(digest, cut_after(b"!" + data[1:], 1500), nothing)
    with pytest.raises(DigestMismatch):
        blobs.append(digest, 1500, [data[1500:]], None, nothing)
    assert files(tmp_path / "blobs") == []


def test_concurrent_uploads_of_one_digest_all_succeed(blobs: LocalBlobs, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    digest = digest_of(data)
    gate = threading.Barrier(8)
    sizes: list[int] = []

    def upload() -> None:
        def pieces() -> Iterator[bytes]:
            gate.wait()
            for start in range(0, len(data), 1000):
                yield data[start : start + 1000]

        sizes.append(blobs.put(digest, pieces(), nothing))

    threads = [threading.Thread(target=upload, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [len(data)] * 8
    assert content(blobs, digest) == data
    assert files(tmp_path / "blobs") == [digest]


def test_bytes_of_unknown_digest_are_stored_under_their_digest(blobs: LocalBlobs) -> None:
    committed: list[tuple[str, int]] = []
    assert blobs.store([b"abc", b"def"], lambda d, s, _: committed.append((d, s))) == (digest_of(b"abcdef"), 6)
    assert committed == [(digest_of(b"abcdef"), 6)]


def test_old_interrupted_uploads_are_removed_unless_they_are_being_written(blobs: LocalBlobs, tmp_path: Path) -> None:
    data = os.urandom(3000)
    digest = digest_of(data)
    with pytest.raises(Cut):
        blobs.put(digest, cut_after(data, 1500), nothing)
    assert blobs.remove_orphans(3600) == 0

    def pieces() -> Iterator[bytes]:
        assert blobs.remove_orphans(0) == 0
        assert blobs.offset(digest) == 1500, "an upload that is being written is not removed"
        yield data[1500:]

    blobs.append(digest, 1500, pieces(), None, nothing)
    assert content(blobs, digest) == data
    other = os.urandom(3000)
    with pytest.raises(Cut):
        blobs.for_owner("anna").put(digest_of(other), cut_after(other, 1500), nothing)
    assert (blobs.offset(digest_of(other)), blobs.for_owner("anna").offset(digest_of(other))) == (0, 1500)
    assert blobs.remove_orphans(0) == 1
    assert files(tmp_path / "blobs") == [digest]


def test_the_lock_of_a_digest_keeps_a_put_from_committing(blobs: LocalBlobs) -> None:
    data = b"locked"
    digest = digest_of(data)
    done = threading.Event()

    def put() -> None:
        blobs.put(digest, [data], nothing)
        done.set()

    thread = threading.Thread(target=put, daemon=True)
    with blobs.locked(digest):
        thread.start()
        assert not done.wait(0.2)
        assert blobs.size(digest) is None
    assert done.wait(5)
    thread.join()
    assert content(blobs, digest) == data


@pytest.mark.root
def test_fault_31_a_full_disk_leaves_no_temporary_file_and_the_repeat_works(tmp_path: Path) -> None:
    """Seen to fail when an upload that did not fit stays on the disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        blobs = LocalBlobs(disk / "blobs")
        filler = disk / "filler"
        filler.write_bytes(b"x" * 700_000)
        data = os.urandom(600_000)
        digest = digest_of(data)
        for _ in range(3):
            with pytest.raises(NoSpace):
                blobs.put(digest, [data[n : n + 50_000] for n in range(0, len(data), 50_000)], nothing)
            assert files(disk / "blobs") == []
        filler.unlink()
        blobs.put(digest, [data], nothing)
        assert content(blobs, digest) == data
    finally:
        subprocess.run(["umount", str(disk)], check=True)
